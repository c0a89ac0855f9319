/* The functions of one kind of device for a training group. group.c checks the arguments and calls
 * through this table; the objects of a backend start with the base structs below. */
#ifndef FL_AUTODP_GROUP_BACKEND_H
#define FL_AUTODP_GROUP_BACKEND_H

#include "autodp/group/group.h"

/* The meaning of each entry is that of fl_<entry> in group.h. */
typedef struct fl_group_ops {
    const char *kind;

    fl_status (*group_open)(const fl_group_options *options, fl_group **out);
    void (*group_close)(fl_group *group);
    void (*group_abort)(fl_group *group, fl_status why);
    fl_status (*group_state)(fl_group *group);
    fl_status (*group_all_reduce)(fl_group *group, double *values, int n, int64_t deadline_us);
    void (*group_stats)(const fl_group *group, fl_group_stats *out);

    fl_status (*channel_open)(fl_group *group, bool sending, int peer, uint32_t id,
                              size_t max_bytes, int depth, fl_channel **out);
    fl_status (*bucket_create)(fl_group *group, uint32_t id, const int *owners, int n_owners,
                               float *data, int64_t n, fl_bucket **out);
} fl_group_ops;

/* Functions of one channel or bucket: members of one host may use another transport than members of
 * different hosts. The meaning of each entry is that of its fl_channel_ or fl_bucket_ function.
 * group.c knows which buffers are busy: it sends or posts a free one, and waits for a busy one. */
typedef struct fl_channel_ops {
    void (*close)(fl_channel *channel);
    void *(*buffer)(fl_channel *c, int64_t n);
    fl_status (*send)(fl_channel *c, int64_t n, size_t size_bytes);
    fl_status (*reuse)(fl_channel *c, int64_t n, int64_t deadline_us);
    fl_status (*post)(fl_channel *c, int64_t n, size_t size_bytes);
    fl_status (*wait)(fl_channel *c, int64_t n, size_t size_bytes, int64_t deadline_us);
    void (*release)(fl_channel *c, int64_t n);
} fl_channel_ops;

typedef struct fl_bucket_ops {
    void (*destroy)(fl_bucket *bucket);
    void (*share)(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes);
    fl_status (*start)(fl_bucket *bucket);
    fl_status (*wait)(fl_bucket *bucket, int64_t deadline_us);
} fl_bucket_ops;

struct fl_group {
    const fl_group_ops *ops;
    int index, size;
    uint32_t generation;
    int n_sums; /* started */
};

struct fl_channel {
    const fl_channel_ops *ops;
    fl_group *group;
    bool sending;
    int peer;
    uint32_t id;
    size_t max_bytes, stride_bytes; /* of a message; from one buffer to the next */
    int depth;
    struct {
        bool busy; /* sent and not waited for, or posted */
        size_t bytes;
    } * slots; /* [depth] */
};

/* group.c. The common part of every kind of channel: the backend's open starts with init, and its
 * close ends with fini, also after a failed init. */
fl_status fl__channel_init(fl_channel *c, const fl_channel_ops *ops, fl_group *group, bool sending,
                           int peer, uint32_t id, size_t max_bytes, int depth) FL_MUST_CHECK;
void fl__channel_fini(fl_channel *c);

/* The buffer that message n lies in. */
static inline size_t fl__channel_slot(const fl_channel *c, int64_t n)
{
    return (size_t)(n % c->depth);
}

struct fl_bucket {
    const fl_bucket_ops *ops;
    fl_group *group;
    uint32_t id;
    float *data; /* borrowed [n] */
    int64_t n;
};

/* For devices that compute in host memory. */
extern const fl_group_ops fl_host_group_ops;

#endif
