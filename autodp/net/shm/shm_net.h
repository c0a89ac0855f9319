/* What the files of the net through shared memory share. shm_net.c has the overview. */
#ifndef FL_AUTODP_NET_SHM_SHM_NET_H
#define FL_AUTODP_NET_SHM_SHM_NET_H

#include "autodp/net/op_queue.h"
#include "autodp/net/shm/shm_board.h"
#include "autodp/net/transport.h"

#include <pthread.h>

typedef struct fl_shm_net fl_shm_net;
typedef struct fl_shm_buffer fl_shm_buffer;

/* Of the frames in a lane. */
typedef enum fl_shm_frame_kind {
    FL_SHM_MESSAGE = 1, /* its bytes follow */
    FL_SHM_CREDIT,      /* a receive was posted: one message of at most that many bytes may come */
} fl_shm_frame_kind;

typedef struct fl_shm_peer {
    bool spare, lost, left;
    bool is_watched, has_ended; /* its process */
    int pid_fd;                 /* readable once that has ended; -1: none */
    fl_net_queue posted;        /* receives whose message has not begun */
    fl_net_queue credits;       /* for messages that were not started yet */
    fl_net_queue waiting;       /* sends without a credit */
    fl_net_queue out;           /* to be written, the first one in part: */
    size_t out_bytes;           /* of its frame */
    fl_net_frame in;            /* the frame that is being read, */
    size_t in_bytes;            /* this much of it */
    fl_net_op *into;            /* the receive of its message; NULL: it is thrown away */
} fl_shm_peer;

typedef enum fl_shm_way { FL_SHM_RECEIVE, FL_SHM_SEND } fl_shm_way;

struct fl_shm_buffer {
    fl_net_buffer base;
    unsigned char *data;
    size_t size_bytes;
    struct {
        int peer; /* of the operation started last */
        int n_under_way, n_done;
    } ways[2];
};

struct fl_shm_net {
    fl_net base;
    atomic_int state; /* fl_status */
    bool is_open;
    pthread_mutex_t mutex;
    char reason[256]; /* written once, before `state` */
    fl_shm_board board;
    fl_shm_peer *peers; /* [size] */
    fl_net_pool ops;
    int ends;          /* an epoll of the members' processes; -1: none */
    int64_t looked_us; /* when members were last looked at */
    bool has_moved;    /* an operation was done that another thread may wait for */
};

static inline fl_shm_net *fl__shm_of(fl_net *net)
{
    return (fl_shm_net *)net;
}

/* shm_net.c. Break the net; lose a member. The mutex is held. The first reason stays. */
void fl__shm_break(fl_shm_net *net, fl_status why, const char *reason);
void fl__shm_lose(fl_shm_net *net, int peer, const char *reason);

/* shm_messages.c. The mutex is held. Start an operation; FL_ENOMEM. */
fl_status fl__shm_start(fl_shm_buffer *b, fl_shm_way way, int peer, const fl_net_frame *message,
                        unsigned char *data) FL_MUST_CHECK;

/* Move all that can be moved. */
void fl__shm_progress(fl_shm_net *net);

/* No operation of this buffer uses its memory any more. */
void fl__shm_forget(fl_shm_buffer *b);

/* shm_open.c. The mutex is held. Look which members have left or ended. */
void fl__shm_look(fl_shm_net *net, int64_t now_us);
fl_status fl__shm_open(const fl_net_options *options, fl_net **out) FL_MUST_CHECK;
void fl__shm_close(fl_net *base);

#endif
