/* The script of the fake driver: what each GPU answers, which calls fail and when, what happens in mid-run. Read at nvmlInit. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25 };
enum { MAX_GPUS = 16, MAX_KEYS = 256, MAX_FAILS = 64, MAX_MIG = 8, MAX_XIDS = 32, MAX_USES = 1024, TEXT = 128 };

typedef struct {
    char key[TEXT], text[TEXT];
    unsigned long long number, growth;
} Value;
typedef struct Gpu {
    int index, keys, migs;
    Value values[MAX_KEYS];
    struct Gpu *mig[MAX_MIG], *parent;
} Gpu;
typedef struct {
    char function[TEXT];
    int code, gpu;
    long from, until, after, calls;
} Fail;
typedef struct {
    int gpu, code, told;
    long after;
} Xid;

static Gpu gpus[MAX_GPUS];
static int gpu_count, fail_count, xid_count;
static Fail fails[MAX_FAILS];
static Xid xids[MAX_XIDS];
static int levels[MAX_GPUS][MAX_GPUS], peer[MAX_GPUS][MAX_GPUS];
static char driver[TEXT] = "575.57.08", processes[512];
static int cuda = 12090;
static long quiet; /* how often nobody had anything to report: once for each reading of the advisor */

static Value *find(Gpu *gpu, const char *key) {
    for (int i = 0; i < gpu->keys; i++)
        if (strcmp(gpu->values[i].key, key) == 0) return &gpu->values[i];
    return NULL;
}

/* What is said last counts: a machine is told as one of a kind, with lines after it for what is special. */
static void set(Gpu *gpu, const char *key, const char *text) {
    Value *value = find(gpu, key);
    if (!value && gpu->keys == MAX_KEYS) abort();
    if (!value) value = &gpu->values[gpu->keys++];
    snprintf(value->key, TEXT, "%s", key);
    snprintf(value->text, TEXT, "%s", text);
    char *rest;
    value->number = strtoull(text, &rest, 0);
    value->growth = strtoull(rest, NULL, 0);
}

static void add_mig(Gpu *gpu, const char *uuid) {
    if (gpu->migs == MAX_MIG) abort();
    Gpu *instance = calloc(1, sizeof *instance);
    instance->index = gpu->index;
    instance->parent = gpu;
    set(instance, "uuid", uuid);
    gpu->mig[gpu->migs++] = instance;
}

static void add_fail(const char *function, int code, const char *rest) {
    const char *where = strstr(rest, "gpu "), *from = strstr(rest, "from "), *until = strstr(rest, "until ");
    const char *after = strstr(rest, "after ");
    if (fail_count == MAX_FAILS) abort();
    Fail *fail = &fails[fail_count++];
    snprintf(fail->function, TEXT, "%s", function);
    fail->code = code, fail->calls = 0, fail->gpu = where ? atoi(where + 4) : -1;
    fail->from = from ? atol(from + 5) : 1, fail->until = until ? atol(until + 6) : LONG_MAX;
    fail->after = after ? atol(after + 6) : 0;
}

static void add_gpu_line(int index, const char *key, const char *rest) {
    char name[TEXT];
    int which, used = 0;
    Gpu *gpu = &gpus[index];
    if (index >= gpu_count) gpu_count = index + 1;
    gpu->index = index;
    if (strcmp(key, "mig") != 0)
        set(gpu, key, rest);
    else if (sscanf(rest, "%d %127s %n", &which, name, &used) == 2 && used && which < gpu->migs)
        set(gpu->mig[which], name, rest + used);
    else
        add_mig(gpu, rest);
}

static void read_line(char *line) {
    char a[TEXT], b[TEXT];
    int i, j, code, used = 0;
    long after;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "gpu %d %127s %n", &i, a, &used) == 2 && used && i >= 0 && i < MAX_GPUS) {
        add_gpu_line(i, a, line + used);
    } else if (sscanf(line, "fail %127s %d%n", a, &code, &used) == 2) {
        add_fail(a, code, line + used);
    } else if (sscanf(line, "pair %d %d level %d", &i, &j, &code) == 3 && i < MAX_GPUS && j < MAX_GPUS) {
        levels[i][j] = levels[j][i] = code;
        if (sscanf(line, "pair %*d %*d level %*d p2p %d", &code) == 1) peer[i][j] = peer[j][i] = code;
    } else if (sscanf(line, "xid %d %d after %ld", &i, &code, &after) == 3 && xid_count < MAX_XIDS) {
        xids[xid_count++] = (Xid){i, code, 0, after};
    } else if (sscanf(line, "processes %511s", processes) == 1) {
        return;
    } else if (sscanf(line, "driver %127s", b) == 1) {
        snprintf(driver, TEXT, "%s", b);
    } else if (sscanf(line, "cuda %d", &code) == 1) {
        cuda = code;
    } else if (*line && *line != '#') {
        fprintf(stderr, "fake NVML: cannot read: %s\n", line);
        abort();
    }
}

static int failure(const char *function, int gpu) {
    for (int i = 0; i < fail_count; i++) {
        Fail *fail = &fails[i];
        if (strcmp(fail->function, function) != 0 && !(gpu >= 0 && strcmp(fail->function, "*") == 0)) continue;
        if ((fail->gpu >= 0 && fail->gpu != gpu) || quiet < fail->after) continue;
        long call = ++fail->calls;
        if (call >= fail->from && call <= fail->until) return fail->code;
    }
    return OK;
}

static int value_of(Gpu *gpu, const char *key, unsigned long long *out) {
    Value *value = find(gpu, key);
    if (!value) return NOT_SUPPORTED;
    *out = value->number;
    value->number += value->growth;
    return OK;
}

static int number(const char *function, Gpu *gpu, const char *key, unsigned long long *out) {
    int code = failure(function, gpu->index);
    return code ? code : value_of(gpu, key, out);
}

static int text(const char *function, Gpu *gpu, const char *key, char *out, unsigned size) {
    int code = failure(function, gpu->index);
    Value *value = find(gpu, key);
    if (code || !value) return code ? code : NOT_SUPPORTED;
    snprintf(out, size, "%s", value->text);
    return OK;
}

static int u32(const char *function, Gpu *gpu, const char *key, unsigned *out) {
    unsigned long long value;
    int code = number(function, gpu, key, &value);
    if (!code) *out = (unsigned)value;
    return code;
}
