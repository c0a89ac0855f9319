/* Device memory that NCCL can register: mapped by the driver's calls for virtual memory, with a
 * handle that other processes can be given. Memory of cudaMalloc can be registered too, but NCCL's
 * documentation warns of hangs and faults with it, and by default NCCL leaves it alone. */
#include "device/cuda/pool.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <mutex>
#include <new>

static_assert((int)CUDA_ERROR_OUT_OF_MEMORY == (int)cudaErrorMemoryAllocation, "one code for both");

/* Smaller pieces would waste most of the unit in which memory is mapped. */
static const size_t least_bytes = (size_t)1 << 20;

#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuCtxGetDevice)                                                                              \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuMemAddressFree)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemCreate)                                                                                 \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemMap)                                                                                    \
    X(cuMemRelease)                                                                                \
    X(cuMemSetAccess)                                                                              \
    X(cuMemUnmap)

/* The plugin is not linked to the driver, so that it loads on a machine without one. */
struct driver {
#define MEMBER(name) decltype(&::name) name;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct block {
    CUdeviceptr at;
    size_t size_bytes;
    CUmemGenericAllocationHandle handle;
    block *next;
};

static std::mutex lock;
static block *blocks;

static bool find_driver(driver *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool found = library != nullptr;
#define FIND(name)                                                                                 \
    found = found && (out->name = reinterpret_cast<decltype(out->name)>(dlsym(library, #name))) !=  \
                         nullptr;
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    return found;
}

static bool has(const driver *d, CUdevice device, CUdevice_attribute what)
{
    int value = 0;
    return d->cuDeviceGetAttribute(&value, what, device) == CUDA_SUCCESS && value != 0;
}

/* What is to be allocated on this thread's device. false: it does not suit. */
static bool describe(const driver *d, CUmemAllocationProp *out)
{
    CUdevice device;
    *out = CUmemAllocationProp();
    if (d->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        !has(d, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        !has(d, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        return false;
    }
    out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    out->location.id = device;
    out->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    out->allocFlags.gpuDirectRDMACapable =
        has(d, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    return true;
}

static CUresult unmap(const driver *d, const block *b, bool is_mapped)
{
    CUresult result = is_mapped ? d->cuMemUnmap(b->at, b->size_bytes) : CUDA_SUCCESS;
    CUresult released = b->handle != 0 ? d->cuMemRelease(b->handle) : CUDA_SUCCESS;
    CUresult freed = b->at != 0 ? d->cuMemAddressFree(b->at, b->size_bytes) : CUDA_SUCCESS;
    return result != CUDA_SUCCESS ? result : released != CUDA_SUCCESS ? released : freed;
}

static CUresult map(const driver *d, const CUmemAllocationProp *what, size_t size_bytes, block *b)
{
    size_t unit = 0;
    CUmemAccessDesc access = CUmemAccessDesc();
    access.location = what->location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result =
        d->cuMemGetAllocationGranularity(&unit, what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    b->size_bytes = (size_bytes + unit - 1) / unit * unit;
    result = d->cuMemAddressReserve(&b->at, b->size_bytes, unit, 0, 0);
    result = result == CUDA_SUCCESS ? d->cuMemCreate(&b->handle, b->size_bytes, what, 0) : result;
    bool is_mapped = false;
    if (result == CUDA_SUCCESS) {
        result = d->cuMemMap(b->at, b->size_bytes, 0, b->handle, 0);
        is_mapped = result == CUDA_SUCCESS;
    }
    result = is_mapped ? d->cuMemSetAccess(b->at, b->size_bytes, &access, 1) : result;
    if (result != CUDA_SUCCESS) {
        (void)unmap(d, b, is_mapped);
    }
    return result;
}

int fl__cuda_pool_take(size_t size_bytes, void **out, bool *registers)
{
    driver d;
    CUmemAllocationProp what;
    cudaError_t context = cudaFree(nullptr); /* the runtime makes this thread's one current */
    *registers = false;
    if (context != cudaSuccess) {
        return context;
    }
    block *b = size_bytes >= least_bytes && find_driver(&d) && describe(&d, &what)
                   ? new (std::nothrow) block()
                   : nullptr;
    if (b == nullptr) {
        cudaError_t error = cudaMalloc(out, size_bytes);
        return error == cudaSuccess ? error : (cudaGetLastError(), error);
    }
    CUresult result = map(&d, &what, size_bytes, b);
    if (result != CUDA_SUCCESS) {
        delete b;
        return result;
    }
    std::lock_guard<std::mutex> hold(lock);
    b->next = blocks;
    blocks = b;
    *registers = true;
    *out = reinterpret_cast<void *>(b->at);
    return 0;
}

static block *remove_block(const void *memory)
{
    std::lock_guard<std::mutex> hold(lock);
    block **at = &blocks;
    while (*at != nullptr && reinterpret_cast<void *>((*at)->at) != memory) {
        at = &(*at)->next;
    }
    block *b = *at;
    if (b != nullptr) {
        *at = b->next;
    }
    return b;
}

int fl__cuda_pool_give(void *memory)
{
    driver d;
    block *b = remove_block(memory);
    if (b == nullptr) {
        return cudaFree(memory);
    }
    int code = cudaDeviceSynchronize(); /* as cudaFree waits */
    CUresult result = find_driver(&d) ? unmap(&d, b, true) : CUDA_SUCCESS;
    delete b;
    return code != 0 ? code : (int)result;
}
