/* Whether a host shares the run directory: before it does, no worker is started there. */
#include "control/agent/gate/gate_state.h"

#include "device/system/clock.h"

#include <stdio.h>

fl_status fl__gate_write_proof(fl__gate *g, int i)
{
    fl__remote_host *r = &g->remote[i];
    r->answered_us = 0;
    fl_run_proof_remove(g->o->dir_fd, r->proof);
    return g->hosts->apart ? FL_OK : fl_run_proof_write(g->o->dir_fd, r->proof);
}

bool fl__gate_is_proven(const fl__remote_host *r)
{
    return r->proof[0] == '\0';
}

/* The host and the controller hear of the same reason. */
static void refuse_one_way(fl__gate *g, int i)
{
    char why[FL_HOST_WHY_MAX + 1];
    fl__remote_host *r = &g->remote[i];
    fl_host_message refusal = {.type = FL_HOST_REFUSE};
    snprintf(why, sizeof why,
             "what it writes into the run directory does not come to the head, as with an overlay "
             "or a one-way copy; allowed: a run.dir on a file system that all hosts share, or "
             "run.shared false: %s",
             g->run_dir);
    snprintf(refusal.text, sizeof refusal.text, "%s", why);
    (void)fl__gate_send_to_host(g, &r->peer, &refusal);
    r->unfit = true;
    fl__gate_lose_host(g, i, why);
}

void fl__gate_watch_proof(fl__gate *g, int i, int64_t now_us)
{
    fl__remote_host *r = &g->remote[i];
    if (fl__gate_is_proven(r) || r->answered_us == 0 || g->end_us != 0) {
        return;
    }
    if (fl_run_proof_take_answer(g->run_dir, r->proof)) {
        fl_run_proof_remove(g->o->dir_fd, r->proof);
        fl__gate_send_kept(g, i);
    } else if (now_us - r->answered_us > FL_RUN_PROOF_SHOW_MS * 1000) {
        refuse_one_way(g, i);
    }
}

void fl__gate_take_answer(fl__gate *g, int i)
{
    fl__remote_host *r = &g->remote[i];
    if (r->answered_us == 0) { /* a second answer does not give it more time */
        r->answered_us = fl_now_us();
        fl__gate_watch_proof(g, i, r->answered_us);
    }
}
