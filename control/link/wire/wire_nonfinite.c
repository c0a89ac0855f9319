#include "control/link/wire/wire_nonfinite.h"

#include "control/link/wire/ranges.h"

size_t fl_wire_nonfinite_size(const fl_nonfinite_report *report)
{
    return 6 * 8 + 5 * 4 + 8 * (size_t)report->n_ids;
}

void fl_wire_put_nonfinite(fl_writer *w, const fl_nonfinite_report *report)
{
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->epoch);
    fl_put_f64(w, report->loss);
    fl_put_f64(w, report->grad_norm);
    fl_put_i64(w, report->found.sample);
    fl_put_i64(w, report->n_samples);
    fl_put(w, (uint32_t)report->found.where, 4);
    fl_put(w, (uint32_t)report->found.layer, 4);
    fl_put(w, (uint32_t)report->found.rank, 4);
    fl_put(w, (uint32_t)report->action, 4);
    fl_put(w, (uint32_t)report->n_ids, 4);
    for (int i = 0; i < report->n_ids; i++) {
        fl_put_i64(w, report->ids[i]);
    }
}

/* Whether layer and worker are present or absent as the place of the finding requires. */
static bool is_possible(const fl_nonfinite *found)
{
    bool nowhere = found->where == FL_NONFINITE_NOWHERE;
    bool of_layer = !nowhere && found->where != FL_NONFINITE_LOSS;
    return found->where <= FL_NONFINITE_GRADIENT && found->sample >= -1 &&
           (of_layer ? found->layer >= 0 && found->layer < FL_MAX_LAYERS : found->layer == -1) &&
           (nowhere ? found->rank == -1 : found->rank >= 0 && found->rank < FL_MAX_WORKERS);
}

bool fl_wire_get_nonfinite(fl_reader *r, fl_nonfinite_report *n)
{
    *n = (fl_nonfinite_report){.step = fl_get_i64(r)};
    n->epoch = fl_get_i64(r);
    n->loss = fl_get_f64(r);
    n->grad_norm = fl_get_f64(r);
    n->found.sample = fl_get_i64(r);
    n->n_samples = fl_get_i64(r);
    n->found.where = (fl_nonfinite_where)fl_get(r, 4);
    n->found.layer = fl_get_i32(r);
    n->found.rank = fl_get_i32(r);
    n->action = (fl_nonfinite_action)fl_get(r, 4);
    n->n_ids = fl_get_i32(r);
    if (!fl_wire_is_step(n->step) || !fl_wire_is_step(n->epoch) || !is_possible(&n->found) ||
        n->action > FL_NONFINITE_ENDS_ROW || n->n_ids < 0 || n->n_ids > FL_NONFINITE_IDS_MAX ||
        n->n_samples < n->n_ids || !fl_wire_is_count(n->n_samples)) {
        return false;
    }
    for (int i = 0; i < n->n_ids; i++) {
        n->ids[i] = fl_get_i64(r);
    }
    return true;
}
