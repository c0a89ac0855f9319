/* The state of the relay, and what its files share: relay.c has the loop, relay_join.c the
 * connection to the head until the host has joined, relay_keys.c what follows if it refuses the
 * key, relay_agent.c the agent's process, relay_stop.c what signals do. */
#ifndef FL_CONTROL_AGENT_RELAY_RELAY_STATE_H
#define FL_CONTROL_AGENT_RELAY_RELAY_STATE_H

#include "control/agent/relay/head_watch.h"
#include "control/agent/relay/relay.h"
#include "control/agent/relay/relay_input.h"
#include <signal.h>
#include <sys/types.h>

enum { FL__RELAY_MESSAGES_A_TURN = 64 };

typedef struct fl__relay {
    const fl_relay_options *o;
    int socket, signal_fd;
    int job_fd;        /* a file in memory: the agent's process reads the job there */
    int64_t job_bytes; /* that have come */
    pid_t agent;
    void *zmq, *head, *events;
    int64_t n_dropped;  /* messages of the head */
    int n_failed;       /* handshakes, one after the other, with a head that greets */
    int64_t refused_us; /* when the head has refused the key last; 0: never */
    int64_t keys_us;    /* when the file of keys was read again */
    bool told_refusal;  /* that it is read again */
    bool has_new_keys;  /* with which this process joins anew */
    bool joined, over;  /* over: the head has said so */
    bool drained;       /* the same, because this host is drained */
    bool again;         /* the same, because the run goes back */
    bool stopped;       /* the same, because SIGTERM has ended the run */
    bool failed;        /* the same, because the run has failed */
    bool surveyed;  /* the head has measured links or layers, and listens anew before its welcome */
    bool measures;  /* it does so now, and answers all the time */
    bool plans;     /* all is measured: the head makes a plan, and holds its port meanwhile */
    bool awaits;    /* the head has taken this host in, and waits for others: it answers, too */
    bool head_gone; /* it does so no more: this host waits for it to come back */
    bool apart;     /* the run goes on without this host, which waits to join again */
    bool goes_back; /* with again: the head is not there until it has chosen where to */
    bool was_in;    /* it has joined, now or before the run went back */
    bool told_wait; /* that it waits for the head */
    fl_head_watch watch;
    fl_relay_input input;
    int64_t join_ms;   /* to wait for the head's answer */
    int64_t looked_us; /* when the user of the relay was last asked whether the head has ended */
    int head_code;     /* the exit code of a head that has; 0: it has not */
    int64_t asked_us;  /* when the head was asked to drain this host; 0: it was not */
    int asked_number;  /* the signal for which */
    int held_number;   /* the signal that ends this process at held_until_us; 0: none does */
    int64_t held_until_us;
    char held_why[FL_HOST_TEXT_MAX];
    int64_t silence_ms;
    int64_t heard_us, alive_us;
    int64_t stood_us, stood_at_us; /* this process stood still for so long, until then */
    int64_t end_us;                /* until when the agent may take to end; 0: it need not */
    int signal_number;
    char why[FL_HOST_WHY_MAX + 1]; /* this host cannot take part; "": nobody has said that */
    bool doubted;     /* why: the head may count this host as lost, and has been asked */
    bool confirmed;   /* it does not */
    int refused_how;  /* with doubted: how the agent's process has ended, as waitpid gives it */
    int64_t first_ns; /* with doubted: of the first PING since then; 0: none has come */
    fl_reach_door door;
    fl_reach_round *round; /* NULL: the head has never asked */
} fl__relay;

/* ---- relay.c ---- */

/* ③ */
void fl__relay_begin_end(fl__relay *r);

/* Whether this process has stood still not long ago: what it does may be of an earlier time. */
bool fl__relay_stood(const fl__relay *r);

/* ---- relay_join.c ---- */

fl_status fl__relay_open_head(fl__relay *r) FL_MUST_CHECK;
void fl__relay_close_head(fl__relay *r);

/* To the head. Never waits: its silence shows a failure. */
void fl__relay_send(const fl__relay *r, const fl_host_message *message);
void fl__relay_send_text(const fl__relay *r, fl_host_type type, const char *text);
void fl__relay_send_join(const fl__relay *r);
void fl__relay_send_drain(const fl__relay *r);

/* FL_EPEER: this host measures or trains, and the head takes no connection any more. */
fl_status fl__relay_check_connection(const fl__relay *r, int64_t now_us) FL_MUST_CHECK;

/* The head has answered that it waits for other hosts. */
void fl__relay_note_wait(fl__relay *r);

/* While the host has not joined: ask once more, if it is time, and tell the user for what the host
 * waits. FL_EPEER: the head does not answer in time, or has ended while the run went back;
 * FL_EFAILED: it has ended before this host joined. */
fl_status fl__relay_await_head(fl__relay *r, int64_t now_us) FL_MUST_CHECK;

/* The port at which other hosts try whether they reach this one. ports: as in fl_hosts. */
void fl__relay_open_door(fl__relay *r, const uint16_t ports[2]);

/* Whether the head has refused the key. Reads what has happened to the connection. */
bool fl__relay_is_refused(fl__relay *r);

/* Messages of the head before the host has joined, and the welcome. */
void fl__relay_take_job(fl__relay *r, const unsigned char *bytes, size_t n);
void fl__relay_pass_order(fl__relay *r, const fl_host_message *order, int64_t silence_ms);
void fl__relay_take_measure(fl__relay *r, const fl_host_message *message);
fl_status fl__relay_take_welcome(fl__relay *r, const fl_host_message *message) FL_MUST_CHECK;

/* ---- relay_keys.c ---- */

/* Before the host has joined: r->has_new_keys once the head has refused the key, and its file has
 * other ones. FL_EIO: the head refuses it, and it has no file. */
fl_status fl__relay_watch_keys(fl__relay *r) FL_MUST_CHECK;

/* The wait for the head is over. FL_EIO: it refuses the key; FL_EPEER: it does not answer. */
fl_status fl__relay_fail_unanswered(const fl__relay *r) FL_MUST_CHECK;

/* ---- relay_stop.c ---- */

/* ④ and ⑥: the signals that have come, and the answer of the head. FL_ESTOPPED: this process ends.
 */
fl_status fl__relay_read_signals(fl__relay *r) FL_MUST_CHECK;
fl_status fl__relay_take_release(fl__relay *r, const char *why) FL_MUST_CHECK;
fl_status fl__relay_watch_stop(fl__relay *r, int64_t now_us) FL_MUST_CHECK;

/* ---- relay_agent.c ---- */

/* Start the process that becomes the agent. Before there are threads. */
fl_status fl__relay_fork_agent(fl__relay *r, const sigset_t *before) FL_MUST_CHECK;
void fl__relay_kill_agent(fl__relay *r);

/* Pass a message of the head on to it. Never waits; false: it takes none now. */
bool fl__relay_tell_agent(const fl__relay *r, const fl_host_message *message);

/* Pass what it says on to the head. False: it has ended, or closes, and fl__relay_note_agent_end
 * may say so. */
bool fl__relay_read_agent(fl__relay *r);

/* The head asks for the time, by its own clock at sent_ns: it counts this host as in the run. */
void fl__relay_note_ping(fl__relay *r, int64_t sent_ns);

/* It has ended: tell the head, with the reason. */
fl_status fl__relay_note_agent_end(fl__relay *r, fl_relay_end *end) FL_MUST_CHECK;

#endif
