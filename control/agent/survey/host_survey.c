#include "control/agent/join/awaited.h"
#include "control/agent/process/signals.h"
#include "control/agent/survey/host_survey_parts.h"
#include "control/link/held_port.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "device/system/clock.h"
#include "device/system/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum { DISMISS_MS = 3000, REAP_MS = 2000 };

/* Whether it goes on waiting. A host that was started by ssh and has ended does not come; others
 * may. */
static bool awaits_hosts(const fl__survey *s)
{
    bool waits = false;
    for (int i = 1; i < s->out->n; i++) {
        bool wanted = !s->o->hosts->host[i].absent && !s->host[i].joined;
        if (wanted && s->host[i].gone && !s->o->partial) {
            return false;
        }
        waits = waits || (wanted && !s->host[i].gone);
    }
    return waits;
}

/* The host that is missing, 0: none. One that is gone has ended the wait for the others. */
static int find_missing(const fl__survey *s)
{
    int missing = 0;
    for (int i = s->out->n - 1; i > 0; i--) {
        bool wanted = !s->o->hosts->host[i].absent && !s->host[i].joined;
        if (wanted && (s->host[i].gone || missing == 0 || !s->host[missing].gone)) {
            missing = i;
        }
    }
    return missing;
}

static void note_silent(fl__survey *s)
{
    for (int i = 1; i < s->out->n; i++) {
        bool wanted = !s->o->hosts->host[i].absent && !s->host[i].joined;
        if (wanted && s->out->host[i].why[0] == '\0') {
            s->out->host[i].silent = true;
            snprintf(s->out->host[i].why, sizeof s->out->host[i].why,
                     "its agent has not reached the head at %.80s in %lld s", s->o->hosts->agents,
                     (long long)s->o->join_ms / 1000);
        }
    }
}

/* From time to time: for whom it still waits. */
static void tell_wait(fl__survey *s, fl_awaited_clock *clock)
{
    bool awaited[FL_MAX_WORKERS] = {false};
    for (int i = 1; i < s->out->n; i++) {
        awaited[i] = !s->o->hosts->host[i].absent && !s->host[i].joined && !s->host[i].gone;
    }
    if (s->record_fd >= 0) {
        fl_wait_record_note(&s->record, s->record_fd, s->o->hosts, awaited, s->o->join_ms);
    }
    if (!s->o->quiet) {
        fl_awaited_tell(clock, s->o->hosts, awaited, s->o->join_ms, fl_now_us());
    }
}

static void begin_record(fl__survey *s)
{
    if (s->o->recorded) {
        s->record_fd = open(s->o->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
}

static void note_measuring(fl__survey *s, const char *what)
{
    if (s->record_fd >= 0) {
        fl_wait_record_measures(&s->record, s->record_fd, what);
    }
}

static void end_record(fl__survey *s)
{
    if (s->record_fd >= 0) {
        fl_wait_record_clear(s->record_fd);
        close(s->record_fd);
        s->record_fd = -1;
    }
}

/* The processes of this host that measure have begun before hosts join: without one of them, the
 * wait is for nothing. */
static fl_status check_own(const fl__survey *s)
{
    const fl_host_measuring *m = s->o->measuring;
    if (s->o->links && !s->o->partial && s->host[0].unlinked[0] != '\0') {
        return fl_fail(FL_EPEER, "host %s (%s): %s", s->o->hosts->host[0].name,
                       s->o->hosts->host[0].address, s->host[0].unlinked);
    }
    return m == NULL || m->check_own == NULL ? FL_OK : m->check_own(m->own);
}

static fl_status gather_hosts(fl__survey *s)
{
    int64_t until_us = fl_deadline_us(s->o->join_ms);
    fl_awaited_clock clock;
    fl_awaited_begin(&clock, fl_now_us());
    while (s->stopped == 0 && awaits_hosts(s) && fl_left_ms(until_us) > 0) {
        fl__survey_turn(s);
        FL_TRY(check_own(s));
        tell_wait(s, &clock);
    }
    int i = s->stopped != 0 ? 0 : find_missing(s);
    const fl_host *host = &s->o->hosts->host[i];
    if (i == 0) {
        return FL_OK;
    }
    note_silent(s);
    return s->o->partial ? FL_OK
                         : fl_fail(fl__survey_loss_of(s, i), "host %s (%s): %s", host->name,
                                   host->address, s->out->host[i].why);
}

static fl_status start_agents(fl__survey *s)
{
    const fl_hosts *hosts = s->o->hosts;
    for (int i = 1; i < hosts->n && hosts->by_ssh; i++) {
        if (!hosts->host[i].absent &&
            !fl_host_start(hosts, i, s->o->run_dir, &s->host[i].starter)) {
            return fl_fail(FL_EIO, "host %s: cannot start ssh: %s", hosts->host[i].name,
                           strerror(errno));
        }
    }
    return FL_OK;
}

static fl_status open_ports(fl__survey *s)
{
    fl_held_ports_close(s->o->held_ports);
    FL_TRY(fl_host_socket_open(s->o->hosts, FL_OWN_PORT_MS, &s->socket));
    s->links = zmq_socket(s->socket.zmq, ZMQ_ROUTER);
    bool good = s->links != NULL && fl_zmq_set(s->links, ZMQ_LINGER, 0) &&
                fl_zmq_limit_messages(s->links, FL_HOST_MESSAGE_MAX) &&
                fl_zap_auth_protect(s->socket.guard, s->links);
    return good ? fl_zap_auth_bind_own(s->socket.guard, s->socket.zmq, s->links, s->o->hosts->links,
                                       "where hosts that measure find each other (PORT + 1 of "
                                       "--listen)",
                                       FL_OWN_PORT_MS)
                : fl_fail(FL_EIO, "cannot wait for hosts: %s", zmq_strerror(zmq_errno()));
}

static fl_status open_survey(fl__survey *s)
{
    fl_status status =
        fl__survey_fork(s) ? start_agents(s) : fl_fail(FL_EIO, "%s", strerror(errno));
    FL_TRY(status);
    FL_TRY(fl_store_create(&s->store));
    return open_ports(s);
}

/* Whether this host has an agent, which may be cut off for the moment. */
static bool has_agent(const fl__survey *s, int i)
{
    return s->host[i].joined || (s->host[i].gone && s->host[i].peer.n > 0);
}

/* An agent that has not joined cannot be told: it ends with its ssh. */
static void tell_agents(fl__survey *s, bool ends, const char *why)
{
    fl_host_type type = s->stopped == SIGTERM ? FL_HOST_STOP
                        : s->stopped != 0     ? FL_HOST_QUIT
                        : ends                ? FL_HOST_LEAVE
                                              : FL_HOST_NEXT;
    for (int i = 1; i < s->out->n; i++) {
        if (s->socket.socket != NULL &&
            has_agent(s, i)) { /* Ctrl-C ends the agents as it ends the head: no failure */
            fl__survey_send_text(s, &s->host[i].peer, type, why);
        } else if (ends) {
            fl_host_starter_cut(&s->host[i].starter);
        }
    }
}

/* why: the run does not begin; "": it does, and agents wait for it. */
static void dismiss_agents(fl__survey *s, const char *why)
{
    int64_t until_us = fl_deadline_us(DISMISS_MS);
    bool ends = s->o->dismiss || why[0] != '\0';
    if (s->host != NULL) {
        tell_agents(s, ends, why);
    }
    if (s->links != NULL) {
        zmq_close(s->links);
    }
    fl_host_socket_close(&s->socket);
    if (!ends && s->o->held_ports != NULL) {
        fl_held_ports_hold(s->o->hosts->agents, s->o->hosts->links, s->o->held_ports);
    }
    for (int i = 1; s->host != NULL && i < s->out->n; i++) {
        if (ends) {
            fl_host_starter_close(&s->host[i].starter, fl_left_ms(until_us), !s->o->quiet);
        } else if (s->o->starters != NULL) {
            s->o->starters[i] = s->host[i].starter;
        }
    }
}

static void close_survey(fl__survey *s, const char *why)
{
    dismiss_agents(s, why);
    fl_store_destroy(&s->store);
    if (s->own >= 0) {
        close(s->own);
    }
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        (void)fl_child_reap(s->pid, REAP_MS, NULL);
    }
    if (s->signal_fd >= 0) {
        close(s->signal_fd);
    }
    for (int i = 0; s->host != NULL && i < s->out->n; i++) {
        fl_host_profile_fini(&s->host[i].profile);
    }
    fl_free(s->host);
}

static void announce(const fl__survey *s)
{
    const fl_hosts *hosts = s->o->hosts;
    char awaited[FL_HOST_AWAITED_TEXT], program[FL_HOST_PROGRAM_TEXT];
    fl_log(FL_LOG_INFO, "%s; %s",
           s->o->links ? "measures the links between hosts" : "compares the kinds of hosts",
           fl_host_start_awaited(hosts, fl_program_shown(program, sizeof program), s->o->run_dir,
                                 s->o->join_ms, awaited));
}

static fl_status survey_hosts(fl__survey *s)
{
    if (!s->o->quiet) {
        announce(s);
    }
    FL_TRY(fl_alloc_array((size_t)s->out->n, sizeof *s->host, (void **)&s->host));
    FL_TRY(open_survey(s));
    begin_record(s);
    FL_TRY(gather_hosts(s));
    if (s->stopped == 0 && s->o->measuring != NULL) {
        note_measuring(s, "what layers cost on its hosts");
        FL_TRY(fl__survey_measure_costs(s));
    }
    if (s->stopped == 0 && s->o->links) {
        note_measuring(s, "the links between its hosts");
        FL_TRY(fl__survey_measure_links(s));
    }
    return FL_OK;
}

fl_status fl_host_survey_run(const fl_host_survey_options *options, fl_host_survey *out,
                             int *stopped)
{
    fl__survey s = {.o = options, .out = out, .own = -1, .signal_fd = -1, .record_fd = -1};
    sigset_t stops, before;
    memset(out, 0, sizeof *out);
    out->n = options->hosts->n;
    out->host[0].joined = true;
    fl_signals_stops(&stops);
    sigprocmask(SIG_BLOCK, &stops, &before);
    s.signal_fd = signalfd(-1, &stops, SFD_NONBLOCK | SFD_CLOEXEC);
    fl_status status =
        s.signal_fd < 0 ? fl_fail(FL_EIO, "signalfd: %s", strerror(errno)) : survey_hosts(&s);
    if (s.stopped != 0) {
        status = fl_fail(FL_ESTOPPED, "stopped before all hosts had joined");
    }
    fl_failure failure; /* closing may fail at something, too */
    fl_failure_keep(&failure, status);
    *stopped = s.stopped;
    end_record(&s);
    close_survey(&s, status == FL_OK ? "" : failure.text);
    if (s.stopped == 0) { /* timeout(1) sends SIGTERM twice: the second one would end it halfway */
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    return fl_failure_raise(&failure);
}

bool fl_host_survey_worst(const fl_host_survey *found, fl_link_cost *out)
{
    bool any = false;
    for (int i = 0; i < found->n_pairs; i++) {
        if (!found->pair[i].reached) {
            continue;
        }
        fl_link_cost cost = fl_far_link_cost(&found->pair[i].link);
        out->latency_us =
            !any || cost.latency_us > out->latency_us ? cost.latency_us : out->latency_us;
        out->bytes_per_us =
            !any || cost.bytes_per_us < out->bytes_per_us ? cost.bytes_per_us : out->bytes_per_us;
        out->reduce_bytes_per_us = !any || cost.reduce_bytes_per_us < out->reduce_bytes_per_us
                                       ? cost.reduce_bytes_per_us
                                       : out->reduce_bytes_per_us;
        any = true;
    }
    return any;
}
