/* A stand-in for libnvidia-ml.so.1 that plays the script named by FAKE_NVML_SCRIPT, so that tests run the real Python bindings.
 *
 *   driver 575.57.08                       version strings of the whole driver; field values that came later it does not know
 *   cuda 12090
 *   gpu 0 name NVIDIA H100 80GB HBM3       a value of GPU 0; what is not given is answered with NOT_SUPPORTED (3)
 *   gpu 0 energy_mj 1000000 +250000        a number that grows by that much at every reading
 *   gpu 0 field.269 0 +20000000            a field value by its number; field.165.3 of scope 3
 *   gpu 0 gpm.5 38.2                       a GPM metric by its number; needs `gpu 0 gpm 1`
 *   gpu 0 nvlink.3 1 switch                state and far end of a link: switch, or the index of a GPU
 *   gpu 0 cpus 0-31,64-95                  CPUs and (numa) memory nodes near it
 *   gpu 0 mig MIG-1c5d...                  a MIG instance (may be repeated); then `gpu 0 mig 0 mem_total 1000` of the first of them
 *   pair 0 1 level 50 p2p 3                common ancestor of two GPUs, and why they cannot read each other (default 0: they can)
 *   xid 1 79 after 3                       GPU 1 reports Xid 79 once nobody had anything to report three times
 *   processes FILE                         read at each question: lines of GPU, PID, bytes, SM % since the last and, with MIG, instance
 *   gpu 0 no_process_use 0                 none of them used the GPU, told by that code (0 or 6, as drivers differ)
 *   fail nvmlDeviceGetPowerUsage 999       that function answers with this error ("*": any function that takes a GPU)
 *   fail * 15 gpu 1 from 8 until 9         … for GPU 1 alone, from the 8th such call to the 9th
 *   fail * 15 gpu 1 after 20               … once nobody had anything to report twenty times, as for Xids
 *
 * Built with OLD_DRIVER it lacks functions as drivers before 510 do: GPM, the clock event reasons by their new name, memory info v2,
 * the list of processes v3.
 */
#include "script.h"

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    if (!script) return DRIVER_NOT_LOADED;
    char line[1024];
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
int nvmlDeviceGetName(Gpu *gpu, char *out, unsigned size) { return text(__func__, gpu, "name", out, size); }
int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned size) { return text(__func__, gpu, "uuid", out, size); }
int nvmlDeviceGetSerial(Gpu *gpu, char *out, unsigned size) { return text(__func__, gpu, "serial", out, size); }

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} Pci;
static int pci(const char *function, Gpu *gpu, Pci *out) {
    memset(out, 0, sizeof *out);
    int code = text(function, gpu, "pci", out->id, sizeof out->id);
    if (!code) sscanf(out->id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return code;
}
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *out) { return pci(__func__, gpu, out); }

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    int code = failure(__func__, gpu->index);
    Value *value = find(gpu, "capability");
    if (code || !value) return code ? code : NOT_SUPPORTED;
    return sscanf(value->text, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
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
    if (code) return code;
    if (value_of(gpu, "mem_used", &out->used)) out->used = 0;
    if (value_of(gpu, "mem_reserved", &out->reserved)) out->reserved = 0;
    out->free = out->total - out->used - out->reserved;
    return OK;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *out) {
    MemoryV2 info = {0};
    int code = memory(__func__, gpu, &info);
    out->total = info.total, out->free = info.free, out->used = info.used + info.reserved;
    return code;
}

static const char *const clocks[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
static const char *const max_clocks[] = {"graphics_clock_max", "sm_clock_max", "mem_clock_max", "video_clock_max"};
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    return type < 4 ? u32(__func__, gpu, clocks[type], out) : INVALID_ARGUMENT;
}
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    return type < 4 ? u32(__func__, gpu, max_clocks[type], out) : INVALID_ARGUMENT;
}
int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *out) {
    return sensor == 0 ? u32(__func__, gpu, "temp", out) : INVALID_ARGUMENT;
}

typedef struct {
    unsigned long long reference, violation;
} Violation;
int nvmlDeviceGetViolationStatus(Gpu *gpu, unsigned policy, Violation *out) {
    char key[TEXT];
    snprintf(key, TEXT, "violation.%u", policy);
    return number(__func__, gpu, key, &out->violation);
}
int nvmlDeviceGetPcieThroughput(Gpu *gpu, unsigned counter, unsigned *out) {
    return u32(__func__, gpu, counter ? "pcie_rx_kb_s" : "pcie_tx_kb_s", out);
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type, code;
    union {
        double real;
        unsigned u32;
        unsigned long long u64;
    } value;
} Field;
/* One more than the largest number in the nvml.h of each driver. */
static unsigned field_max(void) {
    static const unsigned maxima[][2] = {{575, 274}, {570, 269}, {560, 230}, {555, 223}, {550, 200}, {535, 197},
                                         {530, 173}, {525, 170}, {520, 167}, {470, 161}, {0, 148}};
    int i = 0;
    while ((unsigned)atoi(driver) < maxima[i][0]) i++;
    return maxima[i][1];
}
static int is_small(unsigned id) { return id == 82 || id == 90 || id == 91 || (id >= 142 && id <= 145) || id == 230; }
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    int code = failure(__func__, gpu->index);
    for (int i = 0; i < count && !code; i++) {
        char key[TEXT];
        unsigned long long value = 0;
        int scoped = fields[i].scope && fields[i].scope != UINT_MAX;
        snprintf(key, TEXT, scoped ? "field.%u.%u" : "field.%u", fields[i].id, fields[i].scope);
        fields[i].code = fields[i].id < field_max() ? (unsigned)value_of(gpu, key, &value) : INVALID_ARGUMENT;
        fields[i].type = is_small(fields[i].id) ? 1 : 3;
        fields[i].value.u64 = ~0ull; /* a reader that takes the wrong member of the union gets nonsense */
        if (fields[i].type == 1)
            fields[i].value.u32 = (unsigned)value;
        else
            fields[i].value.u64 = value;
    }
    return code;
}

int nvmlDeviceGetTopologyCommonAncestor(Gpu *a, Gpu *b, unsigned *out) {
    *out = (unsigned)levels[a->index][b->index];
    return failure(__func__, a->index);
}
int nvmlDeviceGetP2PStatus(Gpu *a, Gpu *b, unsigned index, unsigned *out) {
    *out = (unsigned)peer[a->index][b->index];
    return index > 4 ? INVALID_ARGUMENT : failure(__func__, a->index);
}
static int set_bits(const char *function, Gpu *gpu, const char *key, unsigned words, unsigned long *out) {
    int code = failure(function, gpu->index), first, last, used = 0;
    Value *value = find(gpu, key);
    if (code || !value) return code ? code : NOT_SUPPORTED;
    memset(out, 0, words * sizeof *out);
    for (const char *at = value->text; *at; at += used + (at[used] == ',')) {
        if (sscanf(at, "%d-%d%n", &first, &last, &used) != 2) {
            if (sscanf(at, "%d%n", &first, &used) != 1) abort();
            last = first;
        }
        for (int bit = first; bit <= last && bit < (int)words * 64; bit++) out[bit / 64] |= 1ul << bit % 64;
    }
    return OK;
}
int nvmlDeviceGetCpuAffinity(Gpu *gpu, unsigned words, unsigned long *out) {
    return set_bits(__func__, gpu, "cpus", words, out);
}
int nvmlDeviceGetMemoryAffinity(Gpu *gpu, unsigned words, unsigned long *out, unsigned scope) {
    (void)scope;
    return set_bits(__func__, gpu, "numa", words, out);
}

static int link_of(const char *function, Gpu *gpu, unsigned link, unsigned *state, char *end) {
    char key[TEXT];
    int code = failure(function, gpu->index);
    snprintf(key, TEXT, "nvlink.%u", link);
    Value *value = find(gpu, key);
    if (code || !value) return code ? code : link < 18 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    return sscanf(value->text, "%u %127s", state, end) == 2 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *out) {
    char end[TEXT];
    return link_of(__func__, gpu, link, out, end);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Gpu *gpu, unsigned link, unsigned *out) {
    char end[TEXT] = "";
    unsigned state;
    int code = link_of(__func__, gpu, link, &state, end);
    *out = strcmp(end, "switch") == 0 ? 2 : 0;
    return code;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned link, Pci *out) {
    char end[TEXT] = "";
    unsigned state;
    int code = link_of(__func__, gpu, link, &state, end);
    if (code || strcmp(end, "switch") == 0) return code ? code : NOT_SUPPORTED;
    return pci(__func__, &gpus[atoi(end)], out);
}

typedef struct {
    int watches[MAX_GPUS];
    long quiet;
} EventSet;
int nvmlEventSetCreate(EventSet **out) {
    *out = calloc(1, sizeof **out);
    return failure(__func__, -1);
}
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set) {
    (void)types;
    set->watches[gpu->index] = 1;
    return failure(__func__, gpu->index);
}
typedef struct {
    Gpu *gpu;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} Event;
int nvmlEventSetWait_v2(EventSet *set, Event *out, unsigned timeout_ms) {
    for (int i = 0; i < xid_count && timeout_ms == 0; i++) {
        if (xids[i].told || set->quiet < xids[i].after || !set->watches[xids[i].gpu]) continue;
        xids[i].told = 1;
        *out = (Event){&gpus[xids[i].gpu], 8, (unsigned long long)xids[i].code, UINT_MAX, UINT_MAX};
        return OK;
    }
    if (++set->quiet > quiet) quiet = set->quiet;
    for (int i = 0; i < gpu_count; i++) {
        int code = set->watches[i] ? failure(__func__, i) : OK;
        if (code) return code;
    }
    return TIMEOUT;
}

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} Process;
typedef struct {
    unsigned pid;
    unsigned long long time;
    unsigned sm, memory, encoder, decoder;
} ProcessUse;
static ProcessUse uses[MAX_GPUS][MAX_USES]; /* kept as a driver keeps them: whoever does not say since when is told old ones again */
static unsigned use_count[MAX_GPUS];
static unsigned long long newest_us;
static unsigned list_processes(int gpu, unsigned room, Process *out, ProcessUse *use) {
    FILE *file = *processes ? fopen(processes, "r") : NULL;
    unsigned found = 0, pid, sm;
    unsigned long long bytes;
    int index;
    char line[200];
    while (file && fgets(line, sizeof line, file)) {
        unsigned instance = UINT_MAX;
        if (sscanf(line, "%d %u %llu %u %u", &index, &pid, &bytes, &sm, &instance) < 4 || index != gpu) continue;
        if (out && found < room) out[found] = (Process){pid, bytes, instance, UINT_MAX};
        if (use && found < room) use[found] = (ProcessUse){pid, newest_us, sm, 0, 0, 0};
        found++;
    }
    if (file) fclose(file);
    return found;
}
int nvmlDeviceGetProcessUtilization(Gpu *gpu, ProcessUse *out, unsigned *count, unsigned long long since) {
    int code = failure(__func__, gpu->index);
    unsigned room = *count, *all = &use_count[gpu->index];
    Value *none = find(gpu, "no_process_use");
    if (!out) { /* the question for their number comes first */
        newest_us++;
        if (*all > MAX_USES / 2) *all = 0; /* a driver forgets, too */
        *all += list_processes(gpu->index, MAX_USES - *all, NULL, uses[gpu->index] + *all);
        if (*all > MAX_USES) abort();
    }
    *count = 0;
    for (unsigned i = 0; i < *all && !none; i++) {
        if (uses[gpu->index][i].time <= since) continue;
        if (out && *count < room) out[*count] = uses[gpu->index][i];
        ++*count;
    }
    if (none && !code) return (int)none->number;
    return code ? code : *count == 0 ? NOT_FOUND : *count > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetPowerManagementLimitConstraints(Gpu *gpu, unsigned *low, unsigned *high) {
    int code = u32(__func__, gpu, "power_limit_min_mw", low);
    return code ? code : u32(__func__, gpu, "power_limit_max_mw", high);
}
int nvmlDeviceGetEccMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    int code = u32(__func__, gpu, "ecc", current);
    *pending = *current;
    return code;
}

#define U32(function, key) \
    int function(Gpu *gpu, unsigned *out) { return u32(#function, gpu, key, out); }
#define U64(function, key) \
    int function(Gpu *gpu, unsigned long long *out) { return number(#function, gpu, key, out); }
U32(nvmlDeviceGetPowerUsage, "power_mw")
U32(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
U32(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
U64(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
U64(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons")
U32(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
U32(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
U32(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
U32(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gen_gpu_max")

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *out) { return memory(__func__, gpu, out); }
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *out) {
    int code = failure(__func__, gpu->index);
    unsigned room = *count;
    *count = list_processes(gpu->index, room, out, NULL);
    return code ? code : *count > room ? INSUFFICIENT_SIZE : OK;
}
U64(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons")

typedef struct {
    Gpu *gpu;
    long taken;
} GpmSample;
typedef struct {
    unsigned version, supported;
} GpmSupport;
typedef struct {
    unsigned id, code;
    double value;
    const char *name[3];
} GpmMetric;
typedef struct {
    unsigned version, count;
    GpmSample *first, *second;
    GpmMetric metrics[98]; /* the bindings know of more: `count` says how many there are */
} GpmGet;
int nvmlGpmQueryDeviceSupport(Gpu *gpu, GpmSupport *out) {
    unsigned long long value = 0;
    if (out->version != 1) return ARGUMENT_VERSION_MISMATCH;
    value_of(gpu, "gpm", &value);
    out->supported = (unsigned)value;
    return failure(__func__, gpu->index);
}
int nvmlGpmSampleAlloc(GpmSample **out) {
    *out = calloc(1, sizeof **out);
    return failure(__func__, -1);
}
int nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    return OK;
}
int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    static long taken;
    sample->gpu = gpu, sample->taken = ++taken;
    return failure(__func__, gpu->index);
}
int nvmlGpmMetricsGet(GpmGet *get) {
    if (get->version != 1) return ARGUMENT_VERSION_MISMATCH;
    if (get->count > 98 || get->first->gpu != get->second->gpu || get->first->taken >= get->second->taken)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < get->count; i++) {
        char key[TEXT];
        snprintf(key, TEXT, "gpm.%u", get->metrics[i].id);
        Value *value = find(get->first->gpu, key);
        get->metrics[i].code = value ? OK : NOT_SUPPORTED;
        get->metrics[i].value = value ? atof(value->text) : -1;
    }
    return failure(__func__, get->first->gpu->index);
}
#endif
