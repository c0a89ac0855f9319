#include "control/wire_steer.h"

#include <math.h>

void fl_wire_put_steer(fl_writer *w, const fl_steer *steer)
{
    fl_put(w, (uint32_t)steer->kind, 4);
    fl_put_i64(w, steer->serial);
    fl_put_f64(w, steer->value);
}

bool fl_wire_get_steer(fl_reader *r, fl_steer *steer)
{
    uint64_t kind = fl_get(r, 4);
    *steer = (fl_steer){.serial = fl_get_i64(r)};
    steer->value = fl_get_f64(r);
    if (kind < FL_STEER_PAUSE || kind > FL_STEER_LOG) {
        return false;
    }
    steer->kind = (fl_steer_kind)kind;
    return steer->serial > 0 && isfinite(steer->value) && steer->value >= 0.0;
}

void fl_wire_put_steered(fl_writer *w, const fl_steered_report *report)
{
    fl_put_i64(w, report->serial);
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->end_step);
}

bool fl_wire_get_steered(fl_reader *r, fl_steered_report *report)
{
    *report = (fl_steered_report){.serial = fl_get_i64(r)};
    report->step = fl_get_i64(r);
    report->end_step = fl_get_i64(r);
    return report->serial > 0 && report->step >= 0 && report->end_step >= report->step;
}
