/* What Frostline uses of NCCL, as declarations of its own: the library is loaded at run time, and
 * the build needs no header of it. Names, values and layouts are those of nccl.h of NCCL 2.28.9
 * (github.com/NVIDIA/nccl, src/nccl.h.in); where the build finds NVIDIA's header,
 * tests/nccl/check.cu compares both. */
#ifndef FL_AUTODP_NCCL_ABI_H
#define FL_AUTODP_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>

/* As ncclGetVersion gives it. Splits of communicators came with 2.18. */
enum { FL_NCCL_OLDEST = 21801, FL_NCCL_NEXT_MAJOR = 30000 };

typedef struct ncclComm *fl_nccl_handle; /* ncclComm_t */

enum { FL_NCCL_ID_BYTES = 128 };

typedef struct fl_nccl_id { /* ncclUniqueId */
    char internal[FL_NCCL_ID_BYTES];
} fl_nccl_id;

typedef enum fl_nccl_result { /* ncclResult_t */
                              FL_NCCL_SUCCESS = 0,
                              FL_NCCL_UNHANDLED_CUDA_ERROR = 1,
                              FL_NCCL_SYSTEM_ERROR = 2,
                              FL_NCCL_INTERNAL_ERROR = 3,
                              FL_NCCL_INVALID_ARGUMENT = 4,
                              FL_NCCL_INVALID_USAGE = 5,
                              FL_NCCL_REMOTE_ERROR = 6,
                              FL_NCCL_IN_PROGRESS = 7
} fl_nccl_result;

enum { FL_NCCL_UINT8 = 1, FL_NCCL_FLOAT32 = 7 }; /* ncclDataType_t */
enum { FL_NCCL_SUM = 0 };                        /* ncclRedOp_t */
enum { FL_NCCL_NO_COLOR = -1, FL_NCCL_UNDEFINED = INT_MIN };
enum { FL_NCCL_CONFIG_VERSION = 21800 };

#define FL_NCCL_CONFIG_MAGIC 0xcafebeefu

/* ncclConfig_t as 2.18 had it: later versions have more fields behind these, and take what is
 * missing, by `size` and `version`, for their defaults. */
typedef struct fl_nccl_config {
    size_t size;
    unsigned int magic, version;
    int blocking; /* 0: calls return FL_NCCL_IN_PROGRESS rather than wait */
    int cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} fl_nccl_config;

#define FL_NCCL_CONFIG_INIT                                                                        \
    {                                                                                              \
        .size = sizeof(fl_nccl_config), .magic = FL_NCCL_CONFIG_MAGIC,                             \
        .version = FL_NCCL_CONFIG_VERSION, .blocking = 0, .cga_cluster_size = FL_NCCL_UNDEFINED,   \
        .min_ctas = FL_NCCL_UNDEFINED, .max_ctas = FL_NCCL_UNDEFINED, .net_name = NULL,            \
        .split_share = FL_NCCL_UNDEFINED                                                           \
    }

/* X(result, name without "nccl", arguments). Streams are cudaStream_t. */
#define FL__NCCL_FUNCTIONS(X)                                                                      \
    X(fl_nccl_result, GetVersion, (int *version))                                                  \
    X(const char *, GetErrorString, (fl_nccl_result result))                                       \
    X(const char *, GetLastError, (fl_nccl_handle comm))                                           \
    X(fl_nccl_result, GetUniqueId, (fl_nccl_id * id))                                              \
    X(fl_nccl_result, CommInitRankConfig,                                                          \
      (fl_nccl_handle * comm, int n_ranks, fl_nccl_id id, int rank, fl_nccl_config *config))       \
    X(fl_nccl_result, CommSplit,                                                                   \
      (fl_nccl_handle comm, int color, int key, fl_nccl_handle *child, fl_nccl_config *config))    \
    X(fl_nccl_result, CommFinalize, (fl_nccl_handle comm))                                         \
    X(fl_nccl_result, CommDestroy, (fl_nccl_handle comm))                                          \
    X(fl_nccl_result, CommAbort, (fl_nccl_handle comm))                                            \
    X(fl_nccl_result, CommGetAsyncError, (fl_nccl_handle comm, fl_nccl_result * error))            \
    X(fl_nccl_result, GroupStart, (void))                                                          \
    X(fl_nccl_result, GroupEnd, (void))                                                            \
    X(fl_nccl_result, Send,                                                                        \
      (const void *from, size_t count, int type, int peer, fl_nccl_handle comm, void *stream))     \
    X(fl_nccl_result, Recv,                                                                        \
      (void *to, size_t count, int type, int peer, fl_nccl_handle comm, void *stream))             \
    X(fl_nccl_result, AllReduce,                                                                   \
      (const void *from, void *to, size_t count, int type, int op, fl_nccl_handle comm,            \
       void *stream))                                                                              \
    X(fl_nccl_result, Broadcast,                                                                   \
      (const void *from, void *to, size_t count, int type, int root, fl_nccl_handle comm,          \
       void *stream))

#define FL__NCCL_REGISTER_FUNCTIONS(X)                                                             \
    X(fl_nccl_result, CommRegister,                                                                \
      (fl_nccl_handle comm, void *buffer, size_t size_bytes, void **handle))                       \
    X(fl_nccl_result, CommDeregister, (fl_nccl_handle comm, void *handle))

enum { FL_NCCL_SHRINK_DEFAULT = 0, FL_NCCL_SHRINK_ABORT = 1, FL_NCCL_REVOKE_DEFAULT = 0 };

/* Functions of later versions, NULL where the library lacks them: registration came with 2.19,
 * shrink with 2.27, revoke with 2.29. */
#define FL__NCCL_LATER_FUNCTIONS(X)                                                                \
    FL__NCCL_REGISTER_FUNCTIONS(X)                                                                 \
    X(fl_nccl_result, CommShrink,                                                                  \
      (fl_nccl_handle comm, int *excluded, int n_excluded, fl_nccl_handle *child,                  \
       fl_nccl_config *config, int flags))                                                         \
    X(fl_nccl_result, CommRevoke, (fl_nccl_handle comm, int flags))

#endif
