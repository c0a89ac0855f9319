/* Keys that the head refuses: ① of control/agent/relay/relay.c. They may be those of a run whose
 * head was killed, and which another head is about to continue with new ones:
 *
 *     refused ──> the file of keys, again and again ── other keys ──> a new process, and ①
 *                                          └── --wait is over ──> the agent ends
 */
#include "control/agent/relay/relay_state.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_US = 200000,    /* between two looks at the file */
    RECENT_US = 3000000, /* since the head refused: it still does */
};

static fl_status fail_refused(const fl__relay *r)
{
    return fl_fail(FL_EIO, "--join: %s refuses the key: it is another run's", r->o->endpoint);
}

static void tell_refused(const fl__relay *r)
{
    fl_log(FL_LOG_WARN,
           "the head at %s refuses the key: it is another run's, or that of an earlier head; reads "
           "%s again for up to %lld s (Ctrl-C ends it)",
           r->o->endpoint, r->o->key_path, (long long)r->join_ms / 1000);
}

fl_status fl__relay_watch_keys(fl__relay *r)
{
    int64_t now_us = fl_now_us();
    if (fl__relay_is_refused(r)) {
        if (r->o->read_keys == NULL) {
            return fail_refused(r);
        }
        r->refused_us = now_us;
    }
    if (r->refused_us == 0 || r->joined || now_us - r->keys_us < LOOK_US) {
        return FL_OK;
    }
    r->keys_us = now_us;
    r->has_new_keys = r->o->read_keys(r->o->keys_context);
    if (r->has_new_keys) {
        fl_log(FL_LOG_INFO, "the head refused the key; %s has other ones now: joins with them",
               r->o->key_path);
    } else if (!r->told_refusal) {
        tell_refused(r);
        r->told_refusal = true;
    }
    return FL_OK;
}

/* No packet may have passed: the message says which ports a firewall has to let through. */
static fl_status fail_silent(const fl__relay *r)
{
    const char *colon = strrchr(r->o->endpoint, ':');
    int port = colon == NULL ? 0 : atoi(colon + 1);
    return fl_fail(FL_EPEER,
                   "--join: no answer from %s in %lld s; the head must listen there, and TCP from "
                   "this host to its ports %d and %d must get through the firewall (--listen of "
                   "frostline run sets the first of them)",
                   r->o->endpoint, (long long)r->join_ms / 1000, port, port + 1);
}

fl_status fl__relay_fail_unanswered(const fl__relay *r)
{
    bool refuses = r->refused_us != 0 && fl_now_us() - r->refused_us < RECENT_US;
    if (r->head_gone && !refuses) {
        return fl_fail(
            FL_EPEER,
            "the head at %s is gone since before the run began, and has not come back in "
            "%lld s; start this agent again once the head is there",
            r->o->endpoint, (long long)r->join_ms / 1000);
    }
    return refuses ? fail_refused(r) : fail_silent(r);
}
