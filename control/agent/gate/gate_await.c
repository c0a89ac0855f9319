/* The gate's wait for hosts: which ones, for how long, and what the user sees of it. */
#include "control/agent/gate/gate_state.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/program.h"

#include <stdio.h>

static int64_t limit_ms(const fl__gate *g)
{
    return g->hosts->again ? FL_AWAITED_AGAIN_MS : FL_AWAITED_JOIN_MS;
}

void fl__gate_await_hosts(fl__gate *g)
{
    char awaited[FL_HOST_AWAITED_TEXT], program[FL_HOST_PROGRAM_TEXT];
    int n = 0;
    fl_awaited_begin(&g->awaited, fl_now_us());
    for (int i = 1; i < g->hosts->n; i++) {
        n += !g->hosts->host[i].absent;
        g->remote[i].n_apart = g->hosts->host[i].n_apart;
        if (g->hosts->host[i].absent) {
            g->remote[i].state = FL__HOST_GONE;
            g->remote[i].late = true;
            g->remote[i].apart_from = g->hosts->host[i].apart_from;
            g->remote[i].trial = g->hosts->host[i].trial;
        }
    }
    if (n > 0) {
        fl_log(FL_LOG_INFO, "%s",
               fl_host_start_awaited(
                   g->hosts,
                   g->o->hosts_measured ? NULL : fl_program_shown(program, sizeof program),
                   g->run_dir, limit_ms(g), awaited));
    }
}

void fl__gate_find_awaited(const fl__gate *g, bool awaited[FL_MAX_WORKERS])
{
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        awaited[i] =
            i > 0 && i < g->hosts->n && g->remote[i].state == FL__HOST_AWAITED && g->end_us == 0;
    }
}

/* An agent may end after it was measured, and before it has joined: nobody else says that. */
void fl__gate_tell_awaited(fl__gate *g, int64_t now_us)
{
    bool awaited[FL_MAX_WORKERS], first[FL_MAX_WORKERS] = {false};
    fl__gate_find_awaited(g, awaited);
    for (int i = 1; i < g->hosts->n; i++) {
        first[i] = awaited[i] && !g->remote[i].late; /* the run does not wait for others */
    }
    fl_wait_record_note(&g->record, g->o->dir_fd, g->hosts, first, limit_ms(g));
    if (g->end_us == 0) {
        fl_awaited_tell(&g->awaited, g->hosts, awaited, limit_ms(g), now_us);
    }
}

void fl__gate_check_awaited(fl__gate *g, int i, int64_t now_us)
{
    char why[64];
    if (now_us - g->awaited.begun_us > limit_ms(g) * 1000) {
        snprintf(why, sizeof why, "it has not joined%s in %lld s", g->hosts->again ? " again" : "",
                 (long long)limit_ms(g) / 1000);
        fl__gate_lose_host(g, i, why);
    }
}
