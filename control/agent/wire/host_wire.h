/* The messages between the head of a run, which is the host of the controller, and the agents of
 * its other hosts. They go over ZeroMQ with CURVE, which keeps their order and their boundaries:
 *
 *     magic u32 | version u16 | type u16 | body
 *
 * Little-endian. A message either decodes whole or is refused. In all versions, the body of JOIN
 * begins with the name of the host. */
#ifndef FL_CONTROL_AGENT_WIRE_HOST_WIRE_H
#define FL_CONTROL_AGENT_WIRE_HOST_WIRE_H

#include "control/agent/measure/host_measure.h"
#include "control/agent/measure/host_probe.h"
#include "control/agent/measure/reach.h"
#include "control/agent/wire/agent_wire.h"
#include "control/state/hosts/host_facts.h"
#include "control/state/hosts/hosts.h"
#include "control/state/hosts/run_proof.h"
#include "device/machine/machine_kind.h"

#include <limits.h>

enum {
    FL_HOST_HEADER_BYTES = 8,
    FL_HOST_JOB_MAX = 128 * 1024, /* bytes of a job */
    FL_HOST_JOB_PIECE = 8 * 1024,
    FL_HOST_TEXT_MAX = FL_HOST_WHY_MAX, /* of a reason */
    FL_HOST_OWN_MAX = 128,              /* addresses of a host */
    FL_HOST_EXIT_UNFIT = 2, /* of an agent: its host cannot take part before a user corrects
                               something */
    FL_HOST_PATIENCE = 2,   /* a host that has lost the head ends after this many times the silence
                               after which the head has lost it */
    FL_HOST_MESSAGE_MAX = FL_AGENT_FRAME_MAX + FL_HOST_HEADER_BYTES,
};

typedef enum fl_host_type {
    /* both ways */
    FL_HOST_FRAME = 1, /* a frame between the controller and an agent (agent_wire.h) */
    FL_HOST_ALIVE = 2, /* nothing to say */
    FL_HOST_LEAVE = 3, /* the sender ends; why, "": because the run is over */
    /* from the host to the head */
    FL_HOST_JOIN = 32,       /* take me in as a host of the run */
    FL_HOST_DRAIN = 33,      /* this host must end soon: go on without it */
    FL_HOST_PONG = 34,       /* the answer to PING */
    FL_HOST_PROBED = 35,     /* the links between this host and another one */
    FL_HOST_PROFILE = 36,    /* the next bytes of the costs that were measured here */
    FL_HOST_UNMEASURED = 37, /* why there are none; or why no more links are measured here */
    FL_HOST_UNFIT = 38,      /* as LEAVE: this host cannot take part, and why */
    FL_HOST_REACHED = 39,    /* which hosts this one did not reach */
    FL_HOST_DOOR = 40,       /* another port at which others try whether they reach it */
    /* from the head to the host */
    FL_HOST_WELCOME = 64,
    FL_HOST_REFUSE = 65,  /* why */
    FL_HOST_BUSY = 79,    /* as REFUSE, for a reason that passes by itself */
    FL_HOST_JOB = 68,     /* the next bytes of the job, before the welcome */
    FL_HOST_AGAIN = 67,   /* end your workers, and join again: the run goes back */
    FL_HOST_PING = 69,    /* what is the time there? In place of ALIVE */
    FL_HOST_STOP = 70,    /* as LEAVE: SIGTERM has ended the run before it was over */
    FL_HOST_QUIT = 78,    /* as LEAVE: the run was stopped otherwise, as by a user */
    FL_HOST_FAILED = 73,  /* as LEAVE: the run has failed */
    FL_HOST_LOST = 74,    /* the head counts this host as lost, and why */
    FL_HOST_NEXT = 75,    /* all is measured: ask to join the run, which answers later */
    FL_HOST_PROBE = 71,   /* before the welcome: measure the links to the other hosts */
    FL_HOST_MEASURE = 72, /* before the welcome, after the job: measure what layers cost */
    FL_HOST_REACH = 76,   /* at any time: which of these hosts does this one reach? */
    FL_HOST_APART = 77,   /* as AGAIN: the run goes on without this host, until it reaches another
                             one again; why */
    FL_HOST_RELEASE = 66, /* the host's workers have left the run: end; or why it must do without */
} fl_host_type;

/* What a host says of itself to join. One that the run knows by its name has the devices that the
 * run knows, and the address of fl_join_address. */
typedef struct fl_host_join {
    char name[FL_HOST_TEXT];
    char address[FL_HOST_TEXT];    /* of the data plane; "": it knows none */
    bool chosen;                   /* by --address; else it is the one that reaches the head */
    int n_own;                     /* 0 .. FL_HOST_OWN_MAX; 0: it says nothing of its addresses */
    uint32_t own[FL_HOST_OWN_MAX]; /* [n_own] its IPv4 addresses: 0x0a000001 is 10.0.0.1 */
    char version[FL_HOST_TEXT];    /* of its program */
    int n_devices;                 /* that a new host offers, 1 .. FL_MAX_WORKERS */
    fl_machine_kind kind;
    uint16_t door; /* the port at which others try whether they reach it; 0: it has none */
} fl_host_join;

/* What a host gets to know of the run that it has joined. */
typedef struct fl_host_welcome {
    fl_host host;                  /* itself */
    char run_dir[PATH_MAX];        /* absolute; on a file system that it shares with the head */
    char proof[FL_RUN_PROOF_TEXT]; /* a file there that shows so (control/state/hosts/run_proof.h);
                                      "": it shares none */
    char cwd[PATH_MAX];            /* to which paths of the job are relative */
    char links[FL_HOSTS_ENDPOINT_MAX]; /* of the control links of its workers */
    int64_t silence_ms;                /* after which the head counts as lost */
    fl_host_facts facts;               /* of the head: this host must have the same */
    bool from_snapshot;        /* it continues from the snapshot that the head has in memory */
    bool continues;            /* the run continues an interrupted one: so do the workers' logs */
    int64_t job_bytes;         /* of the job that came before, 1 .. FL_HOST_JOB_MAX */
    int n_hosts;               /* with which the run began, the head first */
    int first[FL_MAX_WORKERS]; /* [n_hosts] the first worker of each */
    int n_first_ranks;         /* that they have; a host that is new to the run has later ones */
    int n_stores;              /* of the cache on each host; 0: the run has none */
    int64_t state_step;        /* steps of the checkpoint that it continues from; -1: from none */
    uint16_t ports[2];         /* as in fl_hosts */
} fl_host_welcome;

/* One message. `type` determines which member of the union is valid; ALIVE, AGAIN, STOP,
 * FAILED and NEXT have none. */
typedef struct fl_host_message {
    fl_host_type type;
    union {
        struct {                        /* FRAME; JOB: at most FL_HOST_JOB_PIECE */
            const unsigned char *bytes; /* [n] borrowed from the message */
            size_t n;
        } frame;
        fl_host_join join;
        char text[FL_HOST_TEXT_MAX + 1]; /* LEAVE, REFUSE, BUSY, LOST, APART: why; RELEASE: why the
                                            host cannot be drained, "": it is drained */
        uint16_t door;                   /* DOOR: above 0 */
        int64_t grace_ms; /* DRAIN: the time until the host ends, 1 .. FL_HOST_GRACE_MAX_MS */
        struct {
            int64_t sent_ns;           /* PING, PONG: fl_now_ns of the head */
            int64_t there_ns, wall_ns; /* PONG: fl_now_ns of the host, > 0; its time of day, any */
        } clock;
        fl_host_welcome welcome;
        fl_host_probe_order order;     /* PROBE */
        fl_host_link probed;           /* PROBED */
        fl_host_measure_order measure; /* MEASURE */
        fl_host_profile_piece profile; /* PROFILE */
        fl_reach_order reach;          /* REACH */
        fl_reach_answer reached;       /* REACHED */
        struct {
            uint64_t number; /* of the order, MEASURE or PROBE */
            char text[FL_HOST_TEXT_MAX + 1];
        } unmeasured;
    };
} fl_host_message;

/* Write the message to out; returns its size. Threads: pure; any. */
size_t fl_host_wire_put(const fl_host_message *message, unsigned char out[FL_HOST_MESSAGE_MAX]);

/* Read the message that these bytes are. Returns FL_ENOTSUP for one of another version, FL_EFORMAT,
 * with what is wrong, for anything that fl_host_wire_put did not write; the frame that it may carry
 * is not looked at. Threads: pure; any.
 */
fl_status fl_host_wire_get(const unsigned char *bytes, size_t n,
                           fl_host_message *out) FL_MUST_CHECK;

/* The host that an agent asks for in JOIN, of this version or another one. False: the message is no
 * JOIN, or has no name that a host can have. Threads: pure; any. */
bool fl_host_wire_asked(const unsigned char *bytes, size_t n, char name[FL_HOST_TEXT]);

#endif
