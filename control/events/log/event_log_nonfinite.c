/* The event of a step that was not finite. */
#include "control/events/log/event_log.h"
#include "control/events/nonfinite.h"

void fl_event_log_nonfinite(fl_event_log *log, const fl_nonfinite_report *r, const fl_model *model,
                            const char *text)
{
    fl_json *j = fl_event_log_begin(log, "step.nonfinite");
    fl_json_integer(j, "step", r->step);
    fl_json_integer(j, "epoch", r->epoch);
    fl_json_text(j, "action", r->action == FL_NONFINITE_SKIPS ? "skip" : "stop");
    fl_json_real(j, "loss", r->loss);
    fl_json_real(j, "grad_norm", r->grad_norm);
    fl_json_text(j, "where", fl_nonfinite_where_text(r->found.where));
    if (r->found.layer >= 0) {
        fl_json_integer(j, "layer", r->found.layer);
    }
    if (r->found.layer >= 0 && model != NULL) {
        fl_json_text(j, "name", fl_model_layer_name(model, r->found.layer));
        fl_json_text(j, "kind", fl_model_layer_kind(model, r->found.layer));
    }
    if (r->found.rank >= 0) {
        fl_json_integer(j, "worker", r->found.rank);
    }
    if (r->found.sample >= 0) {
        fl_json_integer(j, "sample", r->found.sample);
    }
    fl_json_integer(j, "n_samples", r->n_samples);
    fl_json_array(j, "samples");
    for (int i = 0; i < r->n_ids; i++) {
        fl_json_integer(j, NULL, r->ids[i]);
    }
    fl_json_close(j, ']');
    fl_json_text(j, "message", text);
    fl_event_log_end(log);
}
