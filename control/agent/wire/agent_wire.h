/* The frames between the controller and the agent of a host.
 *
 *     magic u32 | version u16 | type u16 | rank u32 | incarnation u32 | body
 *
 * Little-endian and versioned, as those of the control link (control/link/wire/wire.h). The
 * transport keeps the boundaries of messages: one message carries one frame, and a frame either
 * decodes whole or is refused. */
#ifndef FL_CONTROL_AGENT_WIRE_AGENT_WIRE_H
#define FL_CONTROL_AGENT_WIRE_AGENT_WIRE_H

#include "control/agent/measure/flight_copy.h"
#include "control/agent/measure/process_look.h"
#include "control/agent/measure/reach.h"
#include "control/state/birth.h"
#include "control/state/hosts/host_record.h"
#include "control/state/hosts/hosts.h"
#include "device/machine/machine_kind.h"
#include "device/machine/survey.h"

#include <frostline/status.h>

#include <stddef.h>

enum { FL_AGENT_HEADER_BYTES = 16, FL_AGENT_FRAME_MAX = 16 * 1024 };

typedef enum fl_agent_type {
    /* controller to agent */
    FL_AGENT_SPAWN = 1,   /* start this worker */
    FL_AGENT_KILL = 2,    /* send SIGKILL to this incarnation of the worker */
    FL_AGENT_LOOK = 3,    /* look at the worker's process */
    FL_AGENT_END = 4,     /* end all workers, then yourself; rank and incarnation are 0 */
    FL_AGENT_HIDE = 5,    /* remove the control link's file; rank and incarnation are 0 */
    FL_AGENT_RELEASE = 6, /* to the gate: the host of this first rank may end; incarnation is 0 */
    FL_AGENT_READ = 7,    /* to another host: what has the worker done in these steps? */
    FL_AGENT_REACH = 8,   /* to the gate: which hosts do not reach each other? rank is 0 */
    FL_AGENT_APART = 9,   /* to the gate: the run does without the host of this first rank, which
                             does not reach another one; incarnation is 0 */
    /* agent to controller */
    FL_AGENT_SPAWNED = 32,
    FL_AGENT_EXITED = 33,
    FL_AGENT_LOOKED = 34,
    FL_AGENT_FLIGHT = 35,  /* of another host: which operations the worker's threads are in */
    FL_AGENT_HOST = 36,    /* of the gate: news of the host of this first rank; incarnation is 0 */
    FL_AGENT_REFUSE = 37,  /* to the relay: the host cannot take part; and back, if that ends it;
                              rank and incarnation are 0 */
    FL_AGENT_RECORDS = 38, /* the answer to READ */
    FL_AGENT_REACHED = 39, /* the answer to REACH: what the host of this first rank did not reach;
                              rank 0: all have answered; incarnation is 0 */
    FL_AGENT_SHARES = 40,  /* to the gate: the host of this first rank has answered the proof of the
                              run directory (run_proof.h); incarnation is 0 */
} fl_agent_type;

/* How a run ends for the agents of other hosts. */
typedef enum fl_agent_ending {
    FL_AGENT_ENDS_OVER,
    FL_AGENT_ENDS_AGAIN,   /* the run goes back, and they are to join again */
    FL_AGENT_ENDS_STOPPED, /* by SIGTERM: they are to be started again together with the run */
    FL_AGENT_ENDS_QUIT,    /* stopped otherwise, as by a user */
    FL_AGENT_ENDS_FAILED,  /* it has failed, and they end with exit code 3 */
    FL_AGENT_ENDINGS
} fl_agent_ending;

/* What the gate reports of a host. */
typedef enum fl_host_news {
    FL_HOST_NEWS_JOINED,
    FL_HOST_NEWS_NOTICE, /* it must end soon: its agent asks for it to be drained */
    FL_HOST_NEWS_LOST,
    FL_HOST_NEWS_CLOCK, /* its clock against the head's */
    FL_HOST_NEWS_KINDS
} fl_host_news;

/* One frame. `type` determines which member of the union is valid; KILL, LOOK, HIDE and
 * SHARES have no body.
 */
typedef struct fl_agent_frame {
    fl_agent_type type;
    int32_t rank;
    uint32_t incarnation; /* counts the processes of this rank, from 1 */
    union {
        fl_worker_birth birth; /* SPAWN; of the same rank and incarnation */
        struct {
            int64_t pid;                         /* 0: there is no process */
            int32_t error;                       /* then the errno of fork, otherwise 0 */
            int32_t gpu;                         /* the number of its GPU on its host; 0 without */
            char gpu_name[FL_SURVEY_NAME_BYTES]; /* "": it has none */
        } spawned;
        int32_t wait_status; /* EXITED: as waitpid gives it */
        struct {
            bool is_known; /* false: the process has ended, or /proc cannot be read */
            fl_process_look process;
        } looked;
        fl_flight_shown flight;  /* FLIGHT */
        fl_records_request read; /* READ */
        fl_reach_answer reached; /* REACHED: .host by their index in the run's table of hosts */
        struct {
            uint64_t number; /* of the question, above 0 */
            int64_t timeout_ms;
        } reach; /* REACH */
        struct {
            int32_t from; /* the first rank of the other host */
            fl_host_trial trial;
            char text[FL_HOST_WHY_MAX + 1];
        } apart;                   /* APART */
        fl_flight_records records; /* RECORDS */
        struct {
            fl_host_news news;
            int64_t grace_ms;               /* NOTICE: until the agent ends; otherwise 0 */
            int64_t silent_ms;              /* LOST: it had not answered for so long, or 0 */
            bool unfit;                     /* LOST: it has said that it cannot take part */
            char text[FL_HOST_WHY_MAX + 1]; /* LOST: why; otherwise "" */
            char name[FL_HOST_TEXT];        /* JOINED: of the host, which may be a new one */
            char address[FL_HOST_TEXT];     /* JOINED: of its data plane */
            int n;                          /* JOINED: how many ranks it has; otherwise 0 */
            fl_machine_kind kind;           /* JOINED: of the host; otherwise "" */
            fl_clock_estimate clock;        /* CLOCK, where it is known; otherwise not */
        } host;
        fl_agent_ending ending;         /* END */
        char text[FL_HOST_WHY_MAX + 1]; /* RELEASE: why it cannot be drained; "": it is drained.
                                           REFUSE: why */
    };
} fl_agent_frame;

/* Write the frame to out; returns its size. Threads: pure; any. */
size_t fl_agent_wire_put(const fl_agent_frame *frame, unsigned char out[FL_AGENT_FRAME_MAX]);

/* Read the frame that these bytes are. Returns FL_EFORMAT, with what is wrong, for anything that
 * fl_agent_wire_put did not write. Threads: pure; any. */
fl_status fl_agent_wire_get(const unsigned char *bytes, size_t n,
                            fl_agent_frame *out) FL_MUST_CHECK;

#endif
