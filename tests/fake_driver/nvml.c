/* A stand-in for libnvidia-ml.so.1 that plays the script named by FAKE_NVML_SCRIPT, so that tests run the real Python bindings.
 *
 *   driver 550.54.15                       version strings of the whole driver
 *   cuda 12040
 *   gpu 0 name NVIDIA H100 80GB HBM3       a value of GPU 0; what is not given is answered with NOT_SUPPORTED (3)
 *   gpu 0 energy_mj 1000000 +250000        a number that grows by that much at every reading
 *   gpu 0 mig MIG-1c5d...                  a MIG instance (may be repeated)
 *   fail nvmlDeviceGetPowerUsage 999       that function answers with this error ("*": any function that takes a GPU)
 *   fail * 15 gpu 1 from 8 until 9         … for GPU 1 alone, from the 8th such call to the 9th
 *
 * A function is added by one line with U32 or U64 at the end, or by hand where its answer is a struct.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
enum { MAX_GPUS = 16, MAX_KEYS = 64, MAX_FAILS = 64, MAX_MIG = 8, TEXT = 128 };

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
    long from, until, calls;
} Fail;

static Gpu gpus[MAX_GPUS];
static int gpu_count, fail_count;
static Fail fails[MAX_FAILS];
static char driver[TEXT] = "550.54.15";
static int cuda = 12040;

static void set(Gpu *gpu, const char *key, const char *text) {
    if (gpu->keys == MAX_KEYS) abort();
    Value *value = &gpu->values[gpu->keys++];
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

static void read_line(char *line) {
    char a[TEXT], b[TEXT];
    int index, code, gpu = -1, used = 0;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "gpu %d %127s %n", &index, a, &used) == 2 && used && index >= 0 && index < MAX_GPUS) {
        if (index >= gpu_count) gpu_count = index + 1;
        gpus[index].index = index;
        if (strcmp(a, "mig") == 0)
            add_mig(&gpus[index], line + used);
        else
            set(&gpus[index], a, line + used);
    } else if (sscanf(line, "fail %127s %d%n", a, &code, &used) == 2) {
        Fail *fail = &fails[fail_count++];
        const char *where = strstr(line + used, "gpu "), *from = strstr(line + used, "from ");
        const char *until = strstr(line + used, "until ");
        snprintf(fail->function, TEXT, "%s", a);
        if (where) gpu = atoi(where + 4);
        fail->code = code, fail->gpu = gpu, fail->calls = 0;
        fail->from = from ? atol(from + 5) : 1, fail->until = until ? atol(until + 6) : LONG_MAX;
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
        if (fail->gpu >= 0 && fail->gpu != gpu) continue;
        long call = ++fail->calls;
        if (call >= fail->from && call <= fail->until) return fail->code;
    }
    return OK;
}

static Value *find(Gpu *gpu, const char *key) {
    for (int i = 0; i < gpu->keys; i++)
        if (strcmp(gpu->values[i].key, key) == 0) return &gpu->values[i];
    return NULL;
}

static int number(const char *function, Gpu *gpu, const char *key, unsigned long long *out) {
    int code = failure(function, gpu->index);
    if (code) return code;
    Value *value = find(gpu, key);
    if (!value) return NOT_SUPPORTED;
    *out = value->number;
    value->number += value->growth;
    return OK;
}

static int text(const char *function, Gpu *gpu, const char *key, char *out, unsigned size) {
    int code = failure(function, gpu->index);
    Value *value = find(gpu, key);
    if (code || !value) return code ? code : NOT_SUPPORTED;
    snprintf(out, size, "%s", value->text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    if (!script) return DRIVER_NOT_LOADED;
    char line[512];
    if (gpu_count == 0 && fail_count == 0)
        while (fgets(line, sizeof line, script)) read_line(line);
    fclose(script);
    return failure(__func__, -1);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code ? "a fake error" : "no error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int code = failure(__func__, -1);
    if (!code) snprintf(out, size, "%s", driver);
    return code;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    *out = cuda;
    return failure(__func__, -1);
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = (unsigned)gpu_count;
    return failure(__func__, -1);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **out) {
    if ((int)index >= gpu_count) return INVALID_ARGUMENT;
    *out = &gpus[index];
    return failure(__func__, (int)index);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **out) {
    for (int i = 0; i < gpu_count; i++) {
        Value *value = find(&gpus[i], "uuid");
        if (value && strcmp(value->text, uuid) == 0) return *out = &gpus[i], failure(__func__, i);
    }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(Gpu *gpu, unsigned *out) {
    *out = (unsigned)gpu->index;
    return failure(__func__, gpu->index);
}
int nvmlDeviceGetName(Gpu *gpu, char *out, unsigned size) { return text(__func__, gpu, "name", out, size); }
int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned size) { return text(__func__, gpu, "uuid", out, size); }

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *out) {
    memset(out, 0, sizeof *out);
    int code = text(__func__, gpu, "pci", out->id, sizeof out->id);
    if (!code) sscanf(out->id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return code;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    *current = *pending = gpu->migs > 0;
    return failure(__func__, gpu->index);
}
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *out) {
    *out = MAX_MIG;
    return failure(__func__, gpu->index);
}
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **out) {
    if ((int)index >= gpu->migs) return NOT_FOUND;
    *out = gpu->mig[index];
    return failure(__func__, gpu->index);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Gpu *instance, Gpu **out) {
    *out = instance->parent;
    return instance->parent ? failure(__func__, instance->index) : INVALID_ARGUMENT;
}

typedef struct {
    unsigned gpu, memory;
} Utilization;
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) {
    unsigned long long value;
    int code = number(__func__, gpu, "util", &value);
    if (!code) out->gpu = (unsigned)value, out->memory = 0;
    return code;
}

typedef struct {
    unsigned long long total, free, used;
} Memory;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;
static int memory(const char *function, Gpu *gpu, MemoryV2 *out) {
    int code = number(function, gpu, "mem_total", &out->total);
    Value *used = find(gpu, "mem_used"), *reserved = find(gpu, "mem_reserved");
    if (code) return code;
    out->used = used ? used->number : 0;
    out->reserved = reserved ? reserved->number : 0;
    out->free = out->total - out->used - out->reserved;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *out) { return memory(__func__, gpu, out); }
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *out) {
    MemoryV2 info = {0};
    int code = memory(__func__, gpu, &info);
    out->total = info.total, out->free = info.free, out->used = info.used + info.reserved;
    return code;
}

static const char *const clocks[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
static const char *const max_clocks[] = {"graphics_clock_max", "sm_clock_max", "mem_clock_max", "video_clock_max"};
static int u32(const char *function, Gpu *gpu, const char *key, unsigned *out) {
    unsigned long long value;
    int code = number(function, gpu, key, &value);
    if (!code) *out = (unsigned)value;
    return code;
}
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    return type < 4 ? u32(__func__, gpu, clocks[type], out) : INVALID_ARGUMENT;
}
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    return type < 4 ? u32(__func__, gpu, max_clocks[type], out) : INVALID_ARGUMENT;
}
int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *out) {
    return sensor == 0 ? u32(__func__, gpu, "temp", out) : INVALID_ARGUMENT;
}

#define U32(function, key) \
    int function(Gpu *gpu, unsigned *out) { return u32(#function, gpu, key, out); }
#define U64(function, key) \
    int function(Gpu *gpu, unsigned long long *out) { return number(#function, gpu, key, out); }
U32(nvmlDeviceGetPowerUsage, "power_mw")
U32(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
U64(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
