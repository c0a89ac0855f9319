/* An agent on another host than the controller's: joins a run, and carries frames between the head
 * and the agent, which is the same as on the head.
 *
 *     gate of the head ──── CURVE ──── relay ──socket pair── agent ── fork ──> workers
 *
 * The relay is the parent, because ZeroMQ has threads and the agent must have none. */
#ifndef FL_CONTROL_AGENT_RELAY_RELAY_H
#define FL_CONTROL_AGENT_RELAY_RELAY_H

#include "control/agent/wire/host_wire.h"

/* The body of the agent's process, once the host has joined: prepares what workers inherit, then
 * becomes the agent with this socket (fl__agent_run). job_fd: the job, welcome->job_bytes. Where it
 * cannot, it says why on standard error and ends with an exit code. Never returns. */
typedef void fl_host_serve(void *context, const fl_host_welcome *welcome, int job_fd, int socket);

/* What a process of the relay says to the head before the host has joined: write the message into
 * its socket. */
void fl_relay_tell_head(int socket, const fl_host_message *message);

/* The body of a process that measures what the layers of the job cost on this host, and sends the
 * profile into the socket: the bytes of messages PROFILE, or of one UNMEASURED. */
typedef void fl_host_measure(void *context, const fl_host_measure_order *order, int job_fd,
                             int socket);

/* Whether the head has ended before this host joined, as others than the connection know:
 * FL_EFAILED with its exit code. */
typedef fl_status fl_relay_check_head(void *context, int *exit_code);

/* Read the file of the keys again. True: it has other ones, which are in *options->keys now. */
typedef bool fl_relay_read_keys(void *context);

typedef struct fl_relay_options {
    const char *endpoint;          /* of the head, "tcp://ADDRESS:PORT" */
    const fl_curve_keys *keys;     /* borrowed */
    const char *key_path;          /* their file; with read_keys */
    fl_relay_read_keys *read_keys; /* NULL: they are in no file that may change */
    void *keys_context;
    const char *name;    /* of this host, as the run's file of hosts has it, or a new one */
    const char *address; /* of this host's data plane (fl_join_address); "": none */
    bool address_chosen; /* by the user */
    const uint32_t *own; /* [n_own] the addresses of this host (fl_host_join) */
    int n_own;
    int n_devices;    /* that it offers then */
    int64_t join_ms;  /* to wait for the head's answer */
    int64_t grace_ms; /* after SIGTERM, for the head to drain this host */
    int64_t hold_ms;  /* a signal that ends this process does so after that time; 0: at once.
                         With it, each signal first asks for the drain, as SIGTERM does */
    fl_relay_check_head *check_head; /* NULL: nobody knows */
    void *head_context;
    bool until_eof;       /* it ends with standard input, as long as it has not joined */
    bool input_spoke;     /* something has come from there */
    fl_machine_kind kind; /* of this host */
    fl_host_serve *serve;
    fl_host_measure *measure; /* NULL: it measures nothing */
    void *context;
} fl_relay_options;

typedef struct fl_relay_end {
    int exit_code;     /* of the agent's process, or of the head: with FL_EFAILED */
    int signal_number; /* that stopped it */
    bool stopped;      /* SIGTERM has ended the run on the head */
    bool failed;       /* the run has failed on the head */
    bool drained;      /* the run goes on without this host, and has lost nothing */
    bool joined;       /* this host has joined the run */
    bool told;         /* the agent's process has told the user why */
} fl_relay_end;

/* Join the run, and serve it until it is over, or until the run has drained this host (*end):
 * FL_OK. The first SIGTERM has the host drained. The caller has no threads.
 * FL_EINVAL: the head refuses the name; FL_EIO: it refuses the key, and its file has no other one
 * until the head should have answered; FL_EPEER: it does not answer,
 * or cannot take in the host now, or standard input has ended, or the head was lost, and the
 * workers of this host have been ended; FL_ESTOPPED: by SIGINT, or by a SIGTERM after which the
 * host could not be drained; FL_EFAILED: the agent ended with an exit code, after it said why, or
 * the head did before this host joined. */
fl_status fl_relay_run(const fl_relay_options *options, fl_relay_end *end) FL_MUST_CHECK;

#endif
