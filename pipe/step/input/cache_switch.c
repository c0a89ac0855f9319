#include "pipe/step/input/cache_switch.h"

void fl_cache_switch_init(fl_cache_switch *c, fl_cache_policy policy)
{
    *c = (fl_cache_switch){.policy = policy, .on = true};
}

/* What is new weighs a fifth. One that stands out (the machine did something else) counts as four
 * times the mean; if it stays so, the mean is there within ten. */
static void average(double *mean, double value)
{
    value = *mean > 0.0 && value > 4.0 * *mean ? 4.0 * *mean : value;
    *mean = *mean == 0.0 ? value : 0.8 * *mean + 0.2 * value;
}

void fl_cache_switch_guess(fl_cache_switch *c, double us)
{
    if (c->read_us == 0.0) {
        c->read_us = us;
        c->guessed = true;
    }
    c->probed = true;
}

void fl_cache_switch_read(fl_cache_switch *c, double us)
{
    if (c->guessed) {
        c->read_us = 0.0;
        c->guessed = false;
    }
    average(&c->read_us, us);
    c->probed = true;
}

void fl_cache_switch_computed(fl_cache_switch *c, double us)
{
    average(&c->compute_us, us);
}

void fl_cache_switch_epoch(fl_cache_switch *c, int64_t epoch)
{
    if (epoch != c->epoch && c->off) {
        c->on = true;
        c->probed = false;
        c->read_us = 0.0;
    }
    c->epoch = epoch;
}

void fl_cache_switch_decide(fl_cache_switch *c)
{
    if (c->policy != FL_CACHE_AUTO || !c->probed || c->compute_us == 0.0) {
        return;
    }
    bool pays = c->read_us < c->compute_us;
    c->changed = c->changed || !c->decided || pays == c->off;
    c->decided = true;
    c->on = pays;
    c->off = !pays;
}
