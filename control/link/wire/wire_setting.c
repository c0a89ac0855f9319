#include "control/link/wire/wire_setting.h"

#include "control/link/wire/ranges.h"

#include <math.h>

void fl_wire_put_setting(fl_writer *w, const fl_setting *setting)
{
    fl_put(w, (uint32_t)setting->kind, 4);
    fl_put_i64(w, setting->serial);
    fl_put_f64(w, setting->value);
}

bool fl_wire_get_setting(fl_reader *r, fl_setting *setting)
{
    uint64_t kind = fl_get(r, 4);
    *setting = (fl_setting){.serial = fl_get_i64(r)};
    setting->value = fl_get_f64(r);
    if (kind < FL_SETTING_PAUSE || kind > FL_SETTING_LOG) {
        return false;
    }
    setting->kind = (fl_setting_kind)kind;
    return setting->serial > 0 && isfinite(setting->value) && setting->value >= 0.0;
}

void fl_wire_put_setting_done(fl_writer *w, const fl_setting_done_report *report)
{
    fl_put_i64(w, report->serial);
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->end_step);
}

bool fl_wire_get_setting_done(fl_reader *r, fl_setting_done_report *report)
{
    *report = (fl_setting_done_report){.serial = fl_get_i64(r)};
    report->step = fl_get_i64(r);
    report->end_step = fl_get_i64(r);
    return report->serial > 0 && fl_wire_is_step(report->step) &&
           fl_wire_is_step(report->end_step) && report->end_step >= report->step;
}
