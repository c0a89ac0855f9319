/* What the files of this folder share: a net, its members, and their connections.
 *
 *     this member's out  ---- frames ---->  that member's in      one connection for each direction
 *     this member's in   <--- frames -----  that member's out
 *
 * A member connects once it has something to say: a message, or the credit for one that it waits
 * for. A pair that never talks is never connected.
 *
 *     tls_net.c      the functions of net.h; waits
 *     match.c        operations: which receive a message goes to, which send may begin
 *     out.c          connect, prove, write frames: by the thread that sends, or by the net's thread
 *     in.c           read frames into the memory of the receives
 *     gate.c         listen; connections are strangers until they have proved who they are
 *     loop.c         the net's thread, which waits for all sockets, and leaves
 *     rendezvous.c   addresses, by way of the store
 *     look.c         which connection has no answer
 *
 * The net's mutex guards everything here, and is never held while a socket or TLS is used. Instead,
 * whoever writes to a connection has set out.busy, and the net's thread alone reads. */
#ifndef FL_AUTODP_TLS_STATE_H
#define FL_AUTODP_TLS_STATE_H

#include "autodp/net/transport.h"
#include "autodp/tls/frame.h"
#include "autodp/tls/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

typedef struct fl__tls_net fl__tls_net;
typedef struct fl__tls_buffer fl__tls_buffer;

/* ---- buffers ---- */

/* One direction of a buffer. */
typedef struct fl__tls_side {
    int peer; /* of the operation started last */
    int64_t n_done, n_taken;
} fl__tls_side;

struct fl__tls_buffer {
    fl_net_buffer base;
    unsigned char *data; /* [size_bytes] */
    size_t size_bytes;
    fl__tls_side side[2]; /* receiving, sending */
    pthread_cond_t changed;
    fl__tls_buffer *previous, *next;
};

/* ---- members ---- */

typedef enum fl__tls_out_state {
    FL__TLS_IDLE,       /* nothing was to be said */
    FL__TLS_CONNECTING, /* the socket is not connected yet */
    FL__TLS_SHAKING,
    FL__TLS_PROVED, /* until the other end says that it has taken the connection */
    FL__TLS_OPEN,
    FL__TLS_RETRYING, /* connects again at `due_us` */
    FL__TLS_ENDED,
} fl__tls_out_state;

enum { FL__TLS_STAGE_BYTES = 16 * 1024 }; /* a record */

/* What look.c has seen of the kernel's attempts to get an answer. */
typedef struct fl__tls_asked {
    int64_t looked_us;            /* the last look */
    int n_tries;                  /* at that time */
    int64_t tried_us, noticed_us; /* the last attempt came between these two looks */
    int64_t in_vain_ms;
} fl__tls_asked;

typedef struct fl__tls_out {
    fl__tls_stream stream;
    fl__tls_out_state state;
    int64_t due_us; /* when the attempt is given up, or the next one begins */
    int64_t pause_ms;
    int64_t since_us;          /* the first attempt of those that have not connected; 0: it has */
    int error;                 /* the errno of the last of them; 0: it had no answer */
    int64_t unacknowledged_us; /* since when look.c has found sent data without acknowledgement */
    fl__tls_asked asked;
    bool busy;    /* some thread writes */
    bool blocked; /* the socket takes no more for now */
    bool look;    /* something has come back on it */
    bool bye;     /* a bye is the last frame */
    bool renews;  /* the stage ends with a renew */
    uint64_t n_records;
    /* The bytes at hand: small frames and the heads of large ones are put together in a stage. */
    unsigned char *stage; /* [FL__TLS_STAGE_BYTES] */
    size_t stage_bytes, stage_at;
    fl_net_op *current; /* its payload goes from where it lies, behind the stage */
    size_t current_at;
} fl__tls_out;

typedef struct fl__tls_in {
    fl__tls_stream stream;
    bool used; /* a frame has come */
    bool more; /* there may be more than was read */
    unsigned char head[FL__TLS_HEAD_BYTES];
    size_t head_at;
    bool in_payload;
    fl_net_frame frame;
    fl_net_op *op; /* that the payload belongs to; its buffer NULL: it is thrown away */
    size_t payload_at;
    bool busy; /* the net's thread writes into the memory of `op` */
} fl__tls_in;

typedef struct fl__tls_peer {
    int rank;
    struct sockaddr_storage address;
    bool spare, lost, left;
    int64_t judge_us;     /* when it counts as lost; 0: there is no doubt about it */
    fl_net_queue posted;  /* receives whose message has not begun */
    fl_net_queue credits; /* for messages that were not sent yet */
    fl_net_queue waiting; /* sends without a credit */
    fl_net_queue control; /* frames to write, before */
    fl_net_queue ready;   /* sends to write */
    int n_credits;
    fl__tls_out out;
    fl__tls_in in;
    fl__tls_stream next_in; /* takes over once `in` is renewed */
} fl__tls_peer;

/* ---- the net ---- */

typedef struct fl__tls_gate fl__tls_gate;

struct fl__tls_net {
    fl_net base;
    fl__tls_identity identity;
    pthread_mutex_t mutex;
    pthread_cond_t idle; /* some `busy` has ended, or some connection has come further */
    atomic_int state;    /* fl_status */
    char reason[256];    /* written once, before `state` */
    fl__tls_buffer *buffers;
    fl__tls_peer *peers; /* [size] */
    unsigned char
        *stages; /* [size][FL__TLS_STAGE_BYTES] untouched where a member is not talked to */
    fl_net_pool ops;
    uint64_t most_records; /* of a connection, after which its keys are renewed */
    bool told;             /* the log has how connections are encrypted */

    fl__tls_gate *gate;
    int epoll, wake;
    pthread_t thread;
    bool has_thread, leaving;
    int64_t leave_us; /* when leaving has to end */
};

static inline fl__tls_net *fl__tls_of(fl_net *net)
{
    return (fl__tls_net *)net;
}

/* Keys of events: what, and of which member or which stranger. */
typedef enum fl__tls_event {
    FL__TLS_WAKE,
    FL__TLS_LISTEN,
    FL__TLS_STRANGER,
    FL__TLS_OUT,
    FL__TLS_IN
} fl__tls_event;

/* loop.c. Add a socket to those the net's thread waits for, or change what it is waited for. False:
 * the system has no memory for it. */
bool fl__tls_watch(fl__tls_net *net, int fd, bool is_new, fl__tls_event what, int which,
                   bool to_write);
fl_status fl__tls_loop_open(fl__tls_net *net) FL_MUST_CHECK;
fl_status fl__tls_loop_start(fl__tls_net *net) FL_MUST_CHECK;
void fl__tls_loop_close(fl__tls_net *net); /* says bye if the net is sound */
void fl__tls_wake(fl__tls_net *net);

/* tls_net.c. The mutex is held. Break the net; the first reason stays. lose: a member is gone for
 * good; that breaks the net unless it is expendable. left: it has said bye. */
void fl__tls_break(fl__tls_net *net, fl_status why, const char *reason);
void fl__tls_lose(fl__tls_net *net, fl__tls_peer *p, const char *reason);
void fl__tls_left(fl__tls_net *net, fl__tls_peer *p);

/* The operation is done: its buffer's waiter may go on. The mutex is held. */
void fl__tls_done(fl__tls_net *net, fl_net_op *op);

/* match.c. The mutex is held. */
/* Start an operation; what has to be written is queued. */
fl_status fl__tls_match_send(fl__tls_net *net, fl__tls_peer *p, fl_net_op *op) FL_MUST_CHECK;
fl_status fl__tls_match_receive(fl__tls_net *net, fl__tls_peer *p, fl_net_op *op) FL_MUST_CHECK;

/* What a member sent. The receive of a message; NULL, with the message, if it may not send it. */
fl_status fl__tls_match_credit(fl__tls_net *net, fl__tls_peer *p,
                               const fl_net_frame *frame) FL_MUST_CHECK;
fl_net_op *fl__tls_match_data(fl__tls_peer *p, const fl_net_frame *frame);

/* Nobody waits for the operations of this buffer any more, and nothing uses its memory. */
void fl__tls_withdraw(fl__tls_net *net, fl__tls_peer *p, fl__tls_buffer *b);

/* out.c. The mutex is held, except by `event`. */
void fl__tls_demand(fl__tls_net *net, fl__tls_peer *p); /* connect, unless it is */
void fl__tls_pump(fl__tls_net *net, fl__tls_peer *p);   /* write what can be written */
void fl__tls_out_event(fl__tls_net *net, fl__tls_peer *p, uint32_t events);
void fl__tls_out_tick(fl__tls_net *net, fl__tls_peer *p, int64_t now_us);
void fl__tls_out_close(fl__tls_net *net, fl__tls_peer *p);
bool fl__tls_out_waits(const fl__tls_peer *p);   /* for a moment, not for its socket alone */
bool fl__tls_out_is_done(const fl__tls_peer *p); /* nothing is left to write */

/* look.c */
void fl__tls_look(fl_net *base, fl_net_unanswered *worst);

/* in.c. By the net's thread alone. */
void fl__tls_in_event(fl__tls_net *net, fl__tls_peer *p);
bool fl__tls_in_has_room(const fl__tls_peer *p); /* for one connection more */
void fl__tls_in_take(fl__tls_net *net, fl__tls_peer *p, fl__tls_stream *stream);
void fl__tls_in_close(fl__tls_net *net, fl__tls_peer *p);

/* For how many strangers a net has slots beside those for its members.
 * limit  RLIMIT_NOFILE
 * open   descriptors that the process has
 * size   members of the net
 * Pure. */
int fl__tls_gate_strangers(uint64_t limit, int open, int size);

/* gate.c. By the net's thread alone, except for opening and closing. */
fl_status fl__tls_gate_open(fl__tls_net *net, const char *host,
                            const uint16_t ports[2]) FL_MUST_CHECK;
void fl__tls_gate_close(fl__tls_net *net);
void fl__tls_gate_address(const fl__tls_net *net, struct sockaddr_storage *out);
void fl__tls_gate_accept(fl__tls_net *net);
void fl__tls_gate_event(fl__tls_net *net, int slot);
bool fl__tls_gate_tick(fl__tls_net *net, int64_t now_us); /* whether strangers are there */

/* rendezvous.c. Publish this member's address, learn those of all others, and start the net's
 * thread. FL_OK: all members are there. */
fl_status fl__tls_rendezvous(fl__tls_net *net, const fl_net_options *options) FL_MUST_CHECK;

#endif
