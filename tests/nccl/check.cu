/* Compiled where NVIDIA's header is found: whether autodp/nccl/abi.h says what nccl.h says. */
#include "autodp/nccl/abi.h"

#include <nccl.h>

template <typename... A> constexpr int count_arguments(ncclResult_t (*)(A...))
{
    return sizeof...(A);
}
template <typename... A> constexpr int count_arguments(const char *(*)(A...))
{
    return sizeof...(A);
}
template <typename... A> constexpr int count_arguments(fl_nccl_result (*)(A...))
{
    return sizeof...(A);
}

#define CHECK(result, name, arguments)                                                             \
    static_assert(count_arguments(nccl##name) ==                                                   \
                      count_arguments(static_cast<result(*) arguments>(nullptr)),                  \
                  "the arguments of nccl" #name);
FL__NCCL_FUNCTIONS(CHECK)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1) && NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
FL__NCCL_REGISTER_FUNCTIONS(CHECK)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
FL__NCCL_LATER_FUNCTIONS(CHECK)
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static_assert(count_arguments(ncclCommShrink) == 6, "the arguments of ncclCommShrink");
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static_assert((int)FL_NCCL_SHRINK_DEFAULT == (int)NCCL_SHRINK_DEFAULT, "its number");
static_assert((int)FL_NCCL_SHRINK_ABORT == (int)NCCL_SHRINK_ABORT, "its number");
#endif
#undef CHECK

static_assert(NCCL_MAJOR == 2 && NCCL_VERSION_CODE >= FL_NCCL_OLDEST, "a version that is allowed");
static_assert(NCCL_VERSION(2, 18, 1) == FL_NCCL_OLDEST, "how versions are counted");
static_assert(NCCL_VERSION(3, 0, 0) == FL_NCCL_NEXT_MAJOR, "how versions are counted");
static_assert(sizeof(fl_nccl_id) == sizeof(ncclUniqueId), "the id");
static_assert(sizeof(fl_nccl_result) == sizeof(ncclResult_t), "results");
static_assert((int)FL_NCCL_UNHANDLED_CUDA_ERROR == (int)ncclUnhandledCudaError, "its number");
static_assert((int)FL_NCCL_SYSTEM_ERROR == (int)ncclSystemError, "its number");
static_assert((int)FL_NCCL_INTERNAL_ERROR == (int)ncclInternalError, "its number");
static_assert((int)FL_NCCL_INVALID_ARGUMENT == (int)ncclInvalidArgument, "its number");
static_assert((int)FL_NCCL_INVALID_USAGE == (int)ncclInvalidUsage, "its number");
static_assert((int)FL_NCCL_REMOTE_ERROR == (int)ncclRemoteError, "its number");
static_assert((int)FL_NCCL_IN_PROGRESS == (int)ncclInProgress, "its number");
static_assert((int)FL_NCCL_UINT8 == (int)ncclUint8, "its number");
static_assert((int)FL_NCCL_FLOAT32 == (int)ncclFloat32, "its number");
static_assert((int)FL_NCCL_SUM == (int)ncclSum, "its number");
static_assert((int)FL_NCCL_NO_COLOR == NCCL_SPLIT_NOCOLOR, "its number");
static_assert((int)FL_NCCL_UNDEFINED == NCCL_CONFIG_UNDEF_INT, "its number");

#define SAME_PLACE(ours, theirs)                                                                   \
    static_assert(offsetof(fl_nccl_config, ours) == offsetof(ncclConfig_t, theirs), #ours)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
