/* The functions of one backend of the training group. group.c checks the arguments and calls
 * through this table; the objects of a backend begin with the base structs below. */
#ifndef FL_AUTODP_GROUP_BACKEND_H
#define FL_AUTODP_GROUP_BACKEND_H

#include "autodp/group/group.h"

/* Goes up when the table below changes, so that a backend of another build is refused by name. */
enum { FL_GROUP_OPS_VERSION = 4 };

/* The meaning of each entry is that of fl_<entry> in group.h. */
struct fl_group_ops {
    uint32_t version;    /* FL_GROUP_OPS_VERSION */
    uint32_t size_bytes; /* of this struct */
    const char *kind;

    fl_status (*group_open)(const fl_group_options *options, fl_group **out);
    fl_status (*group_connect)(fl_group *group, int64_t deadline_us);
    void (*group_close)(fl_group *group);
    void (*group_abort)(fl_group *group, fl_status why);
    fl_status (*group_state)(fl_group *group);
    fl_status (*group_all_reduce)(fl_group *group, double *values, int n, int64_t deadline_us);
    void (*group_stats_get)(const fl_group *group, fl_group_stats *out);

    fl_status (*channel_open)(const fl_channel *common, fl_channel **out);
    void (*channel_close)(fl_channel *c);
    fl_status (*channel_send_from)(fl_channel *c, const void *from, size_t size_bytes,
                                   fl_stream *stream, int64_t deadline_us);
    void *(*channel_place)(fl_channel *c);
    fl_status (*channel_flush)(fl_channel *c, int64_t deadline_us);
    fl_status (*channel_post)(fl_channel *c, size_t size_bytes);
    fl_status (*channel_receive_to)(fl_channel *c, void *to, size_t size_bytes, fl_stream *stream,
                                    int64_t deadline_us);

    /* *out NULL: there is no such way between these two, which both find. */
    fl_status (*mover_open)(const fl_mover *common, fl_mover **out);
    void (*mover_close)(fl_mover *m);
    fl_status (*mover_start)(fl_mover *m, void *data, size_t size_bytes);
    fl_status (*mover_wait)(fl_mover *m, int64_t deadline_us);

    fl_status (*bucket_create)(fl_group *group, const fl_bucket_options *options, fl_bucket **out);
    void (*bucket_destroy)(fl_bucket *bucket);
    void (*bucket_part)(const fl_bucket *bucket, int place, int64_t *first, int64_t *n);
    fl_status (*bucket_start)(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream);
    fl_status (*bucket_wait)(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us);

    bool (*bucket_can_capture)(const fl_bucket *bucket);
    /* Only for buckets that can. */
    fl_status (*bucket_capture)(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us);
    fl_status (*bucket_capture_join)(fl_bucket *bucket, fl_stream *stream);
    fl_status (*bucket_launched)(fl_bucket *bucket, fl_stream *stream);
    fl_status (*captured_create)(fl_group *group, fl_graph *graph, fl_captured **out);
    void (*captured_destroy)(fl_captured *captured);
    fl_status (*captured_launch)(fl_captured *captured, fl_stream *stream);
};

/* Whether a backend's table is of this build and complete: FL_ENOTSUP names its version, or the
 * first entry that is missing. fl_group_open asks it of the backend that it chooses. */
fl_status fl_group_ops_check(const fl_group_ops *ops) FL_MUST_CHECK;

struct fl_group {
    const fl_group_ops *ops;
    fl_device *device;
    int index, size;
    uint32_t generation;
    int n_sums;         /* started */
    fl_group_comm comm; /* filled by the backend */
};

struct fl_channel {
    fl_group *group;
    bool sending;
    int peer;
    uint32_t id;
    size_t max_bytes;
    int depth;
    /* group.c counts the messages: sent; or posted, and taken. A backend takes them in order. */
    int64_t n_started, n_taken;
    size_t *posted_bytes; /* [depth] of the messages posted and not taken, by number modulo depth */
};

struct fl_mover {
    fl_group *group;
    bool sending;
    int peer, n_pieces;
    int n_started, n_ended; /* counted by group.c */
};

struct fl_bucket {
    fl_group *group;
    uint32_t id;
    void *data; /* device memory, borrowed [n] */
    fl_dtype dtype;
    int64_t n;
    int n_owners, my_place; /* among the owners in their order */
};

struct fl_captured {
    fl_group *group;
    fl_graph *graph; /* NULL: destroyed, as the group broke */
};

/* What every backend's bucket begins with; `options` are those of bucket_create, of which this
 * member is an owner. Threads: pure; any. */
fl_bucket fl_bucket_common(fl_group *group, const fl_bucket_options *options);

/* Moves everything through host memory, which every device can copy to and from: shared memory
 * between members of one host, Gloo's sockets between hosts. */
extern const fl_group_ops fl_host_group_ops;

/* The net of a group of fl_host_group_ops, which lives as long as the group: a backend that uses
 * such a group learns from it which members are connected. */
fl_net *fl_host_group_net(fl_group *group);

#endif
