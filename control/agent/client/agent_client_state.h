/* The controller's end of an agent, and what its files share: agent_open.c starts and ends the
 * agent, agent_frames.c has what goes to it and comes from it, agent_start.c starts workers, and
 * agent_client.c has what the controller asks of it. */
#ifndef FL_CONTROL_AGENT_CLIENT_AGENT_CLIENT_STATE_H
#define FL_CONTROL_AGENT_CLIENT_AGENT_CLIENT_STATE_H

#include "control/agent/client/agent_client.h"

#include <sys/types.h>

/* Requests about one worker. */
typedef struct fl__agent_requests {
    bool owes_kill;       /* the socket has not taken the KILL frame yet */
    bool looks, answered; /* a LOOK is on its way; its answer has not been read */
    int64_t asked_us;
    bool look_is_known;
    fl_process_look look;
    bool has_records;
    fl_flight_records *records; /* of another host; NULL: they were never asked for */
} fl__agent_requests;

/* What is dropped, and counted. */
typedef enum fl__agent_drop {
    FL__AGENT_DROP_JUNK,    /* no frame */
    FL__AGENT_DROP_TYPE,    /* a frame that the controller sends */
    FL__AGENT_DROP_PROCESS, /* one about a process that is not the worker's present one */
    FL__AGENT_DROP_HOST,    /* news of a host that the run does not know */
    FL__AGENT_DROPS
} fl__agent_drop;

struct fl_agent {
    pid_t pid;
    int socket;
    int alive_fd;    /* ends when neither the agent nor any worker holds the other end */
    bool owes_hide;  /* the socket has not taken the HIDE frame yet */
    bool is_lost;    /* it has died, or has closed the socket */
    int wait_status; /* of the agent, once it is lost */
    int64_t n_dropped[FL__AGENT_DROPS]; /* frames */
    bool awaits_hosts;                  /* that join */
    int dir_fd;                         /* the run directory, borrowed */
    fl_flight *flight;                  /* borrowed */
    int n_near;      /* the ranks below are of this host, and record into `flight` themselves */
    fl_hosts *hosts; /* borrowed; NULL: this one alone */
    fl_host_record *host_records; /* [n_workers] by host, borrowed */
    fl_host_sight *host_sight;    /* borrowed */
    int n_workers;
    fl_worker *workers;           /* [n_workers] */
    fl__agent_requests *requests; /* [n_workers] */
};

/* Whether there is something to read before the deadline. */
bool fl__agent_wait_readable(int fd, int64_t deadline_us);

/* ---- agent_frames.c ---- */

/* Never waits. False: the socket takes no frame now, or the agent is lost. */
bool fl__agent_send(const fl_agent *agent, const fl_agent_frame *frame);

/* A frame about the present process of a worker. */
bool fl__agent_send_about(const fl_agent *agent, fl_agent_type type, const fl_worker *w);

/* The frames that the socket has not taken before. */
void fl__agent_send_owed(fl_agent *agent);

/* Take all frames that have come. Never waits, unless the agent has died. */
void fl__agent_read(fl_agent *agent);

/* ---- agent_open.c ---- */

/* End an agent that has closed its socket or does not answer, and note the end of all its workers.
 */
void fl__agent_bury(fl_agent *agent);

#endif
