/* The plugin's table over the CUDA runtime: libfrostline_cuda.so is this file and the kernels. */
#include "device/cuda/cublaslt.h"
#include "device/cuda/plugin.h"
#include "device/cuda/pool.h"

#include <ctype.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static_assert((int)FL_CUDA_OUT_OF_MEMORY == (int)cudaErrorMemoryAllocation, "the runtime's code");
static_assert((int)FL_CUDA_DRIVER_TOO_OLD == (int)cudaErrorInsufficientDriver,
              "the runtime's code");
static_assert((int)FL_CUDA_BUSY == (int)cudaErrorDevicesUnavailable, "the runtime's code");
static_assert((int)FL_CUDA_NO_DEVICE == (int)cudaErrorNoDevice, "the runtime's code");
static_assert((int)FL_CUDA_NO_KERNEL == (int)cudaErrorNoKernelImageForDevice, "the runtime's code");
static_assert((int)FL_CUDA_MODE_PROHIBITED == (int)cudaComputeModeProhibited, "its number");
static_assert((int)FL_CUDA_MODE_ONE_PROCESS == (int)cudaComputeModeExclusiveProcess, "its number");

static cudaStream_t stream_of(void *stream)
{
    return static_cast<cudaStream_t>(stream);
}

static cudaEvent_t event_of(const void *event)
{
    return static_cast<cudaEvent_t>(const_cast<void *>(event));
}

/* The library's functions, once they are found. */
static fl__cublaslt library;

static const char *error_text(int code)
{
    if (code >= FL_CUDA_LIBRARY_CODE) {
        return library.cublasLtGetStatusString(
            static_cast<cublasStatus_t>(code - FL_CUDA_LIBRARY_CODE));
    }
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}

/* The code of a call that a caller may do without. The runtime would report it once more with the
 * next launch; an error that stays is not forgotten. */
static int forgiven(cudaError_t error)
{
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return error;
}

static int count_devices(int *n)
{
    return cudaGetDeviceCount(n);
}

static int choose_device(int number)
{
    return cudaSetDevice(number);
}

static int device_wait(void)
{
    return cudaDeviceSynchronize();
}

/* For its attributes: every kernel of the plugin is compiled for the same devices. */
static __global__ void any_kernel()
{
}

static int describe_limits(int number, fl_cuda_facts *out)
{
    int mode = 0;
    cudaError_t code =
        cudaDeviceGetAttribute(&out->capability[0], cudaDevAttrComputeCapabilityMajor, number);
    if (code == cudaSuccess) {
        code =
            cudaDeviceGetAttribute(&out->capability[1], cudaDevAttrComputeCapabilityMinor, number);
    }
    if (code == cudaSuccess) {
        code = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, number);
    }
    out->mode = static_cast<fl_cuda_compute_mode>(mode);
    return code;
}

static int describe_device(int number, fl_cuda_facts *out)
{
    cudaDeviceProp properties;
    cudaFuncAttributes attributes;
    cudaError_t code = cudaGetDeviceProperties(&properties, number);
    if (code != cudaSuccess) {
        return code;
    }
    static_assert(sizeof out->name >= sizeof properties.name, "the runtime's names fit");
    memcpy(out->name, properties.name, sizeof properties.name);
    int failed = describe_limits(number, out);
    if (failed != 0 || out->mode == FL_CUDA_MODE_PROHIBITED) {
        return failed;
    }
    code = cudaSetDevice(number);
    if (code == cudaSuccess) {
        code = cudaFuncGetAttributes(&attributes, any_kernel);
    }
    return code == cudaSuccess ? cudaMemGetInfo(&out->free_bytes, &out->memory_bytes) : code;
}

/* As the kernel has it in sysfs; a machine with one node may say -1. */
static int numa_node(int number, int *node)
{
    char id[32], path[96];
    *node = -1;
    cudaError_t code = cudaDeviceGetPCIBusId(id, sizeof id, number);
    if (code != cudaSuccess) {
        return forgiven(code);
    }
    for (char *c = id; *c != '\0'; c++) {
        *c = static_cast<char>(tolower(*c));
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *file = fopen(path, "r");
    if (file != nullptr) {
        if (fscanf(file, "%d", node) != 1) {
            *node = -1;
        }
        fclose(file);
    }
    return 0;
}

/* Peers over PCIe have no atomic operations on each other's memory. */
static int find_nvlink(int number, int other, bool *linked)
{
    int reaches = 0, atomics = 0;
    *linked = false;
    cudaError_t code = cudaDeviceCanAccessPeer(&reaches, number, other);
    if (code == cudaSuccess && reaches != 0) {
        code = cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, number,
                                         other);
    }
    *linked = code == cudaSuccess && reaches != 0 && atomics != 0;
    return forgiven(code);
}

static int identify_device(int number, fl_cuda_identity *out)
{
    cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, number);
    static_assert(sizeof out->bytes == sizeof properties.uuid, "the runtime's identity");
    if (code == cudaSuccess) {
        memcpy(out->bytes, &properties.uuid, sizeof out->bytes);
    }
    return code;
}

static int driver_version(int *out)
{
    return cudaDriverGetVersion(out);
}

static int memory_take(size_t size_bytes, void **out)
{
    return forgiven(cudaMalloc(out, size_bytes));
}


static int memory_free(size_t *size_bytes)
{
    size_t all;
    return forgiven(cudaMemGetInfo(size_bytes, &all));
}

static_assert(sizeof(fl_cuda_handle) == sizeof(cudaIpcMemHandle_t), "the runtime's handle");

static int ipc_export(void *memory, fl_cuda_handle *out)
{
    return forgiven(cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t *>(out), memory));
}

static int ipc_open(const fl_cuda_handle *handle, void **out)
{
    return forgiven(cudaIpcOpenMemHandle(out, *reinterpret_cast<const cudaIpcMemHandle_t *>(handle),
                                         cudaIpcMemLazyEnablePeerAccess));
}

static int ipc_close(void *memory)
{
    return cudaIpcCloseMemHandle(memory);
}

static int host_take(size_t size_bytes, void **out)
{
    return cudaHostAlloc(out, size_bytes, cudaHostAllocDefault);
}

static int host_give(void *memory)
{
    return cudaFreeHost(memory);
}

static int host_pin(void *memory, size_t size_bytes, bool read_only)
{
    return forgiven(cudaHostRegister(
        memory, size_bytes, read_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault));
}

static int host_unpin(void *memory)
{
    return forgiven(cudaHostUnregister(memory));
}

static int copy_bytes(void *stream, void *to, const void *from, size_t n)
{
    return cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, stream_of(stream));
}

static int fill_zero(void *stream, void *to, size_t n)
{
    return cudaMemsetAsync(to, 0, n, stream_of(stream));
}

static int stream_create(void **out)
{
    return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(out), cudaStreamNonBlocking);
}

static int stream_destroy(void *stream)
{
    return cudaStreamDestroy(stream_of(stream));
}

static int stream_wait(void *stream)
{
    return cudaStreamSynchronize(stream_of(stream));
}

static int event_create(void **out)
{
    return cudaEventCreate(reinterpret_cast<cudaEvent_t *>(out));
}

static int event_destroy(void *event)
{
    return cudaEventDestroy(event_of(event));
}

static int event_record(void *event, void *stream)
{
    return cudaEventRecord(event_of(event), stream_of(stream));
}

static int event_wait(void *event)
{
    return cudaEventSynchronize(event_of(event));
}

static int stream_wait_event(void *stream, void *event)
{
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
}

static int event_reached(void *event, bool *reached)
{
    cudaError_t error = cudaEventQuery(event_of(event));
    *reached = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)forgiven(error);
        return 0;
    }
    return error;
}

static int event_elapsed(const void *from, const void *to, float *ms)
{
    return cudaEventElapsedTime(ms, event_of(from), event_of(to));
}

static cudaGraph_t graph_of(void *graph)
{
    return static_cast<cudaGraph_t>(graph);
}

static cudaGraphExec_t executable_of(void *executable)
{
    return static_cast<cudaGraphExec_t>(executable);
}

/* Other threads of a worker allocate and copy meanwhile; the rules hold for this thread alone. */
static int capture_begin(void *stream)
{
    return forgiven(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
}

static int capture_end(void *stream, void **graph)
{
    return forgiven(
        cudaStreamEndCapture(stream_of(stream), reinterpret_cast<cudaGraph_t *>(graph)));
}

static int graph_destroy(void *graph)
{
    return cudaGraphDestroy(graph_of(graph));
}

static int graph_nodes(void *graph, size_t *n)
{
    return forgiven(cudaGraphGetNodes(graph_of(graph), nullptr, n));
}

static int graph_instantiate(void *graph, void **executable)
{
    return forgiven(cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t *>(executable),
                                         graph_of(graph), 0));
}

static int graph_update(void *executable, void *graph)
{
    cudaGraphExecUpdateResultInfo result;
    return forgiven(cudaGraphExecUpdate(executable_of(executable), graph_of(graph), &result));
}

static int graph_launch(void *executable, void *stream)
{
    return forgiven(cudaGraphLaunch(executable_of(executable), stream_of(stream)));
}

static int executable_destroy(void *executable)
{
    return cudaGraphExecDestroy(executable_of(executable));
}

static int library_open(bool tf32, fl__cuda_library **out, const char **reason)
{
    *reason = fl__cublaslt_load(nullptr, &library);
    return *reason == nullptr ? fl__cublaslt_open(&library, tf32, out) : (int)FL__CUDA_NO_LIBRARY;
}

/* C++17 cannot name the members: their order is that of the table. */
extern "C" __attribute__((visibility("default"))) const fl_cuda_plugin fl_cuda_plugin_table = {
    FL_CUDA_PLUGIN_VERSION,
    sizeof(fl_cuda_plugin),
    "cuda",
    error_text,
    count_devices,
    choose_device,
    describe_device,
    numa_node,
    find_nvlink,
    identify_device,
    driver_version,
    device_wait,
    memory_take,
    fl__cuda_pool_take,
    fl__cuda_pool_give,
    memory_free,
    ipc_export,
    ipc_open,
    ipc_close,
    host_take,
    host_give,
    host_pin,
    host_unpin,
    copy_bytes,
    fill_zero,
    stream_create,
    stream_destroy,
    stream_wait,
    event_create,
    event_destroy,
    event_record,
    event_wait,
    stream_wait_event,
    event_elapsed,
    event_reached,
    capture_begin,
    capture_end,
    graph_destroy,
    graph_nodes,
    graph_instantiate,
    graph_update,
    graph_launch,
    executable_destroy,
#define FL_ENTRY(kernel, args) fl__cuda_##kernel,
    FL__CUDA_LAUNCHES(FL_ENTRY)
#undef FL_ENTRY
        library_open,
    fl__cublaslt_close,
    fl__cublaslt_multiply,
    fl__cublaslt_save,
    fl__cublaslt_take,
    fl__cuda_add_to_sum,
    fl__cuda_adamw_many,
    fl__cuda_sgd_many,
    fl__cuda_sum_squares_many,
};
