/* The controller's state after a step, as one plain value: what a resumed run needs to decide as
 * the interrupted one would have. A checkpoint holds it.
 *
 * A decision that takes effect at this step or later counts as not made: the resumed run makes it
 * again, from the same inputs. A change of the plan that a person or the tuner asked for and that
 * was not committed is dropped. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_CONTROLLER_STATE_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_CONTROLLER_STATE_H

#include "control/checkpoint/manifest/struct_json.h"
#include "control/elastic/elastic.h"

typedef struct fl_controller_state {
    int n_workers, n_layers; /* n_layers 0: the layers of the model are unknown */

    /* freezing */
    fl_norms norms;
    int64_t heard;                /* steps whose norms have arrived */
    int64_t due_at;               /* the step that the pending decision is based on; -1: none */
    bool started;                 /* whether a decision before the first step was looked for */
    bool pinned[FL_MAX_LAYERS];   /* [norms.L] element i: block i + 1 must not be frozen */
    int parked[FL_MAX_LAYERS];    /* [n_layers] the rank that keeps a frozen layer's moments; -1 */
    int64_t since[FL_MAX_LAYERS]; /* [n_layers] as in fl_parked */
    fl_cache_warmup warming;

    /* plans */
    fl_worker_pool usable;
    /* to which the run returns after a loss, as in fl_elastic_terms; -1: what the job says */
    int wanted_k, wanted_r;
    int n_started;       /* ranks below it have had a worker since the run began; 0: unknown */
    uint32_t last_asked; /* the highest number of a generation that was asked for */
    fl_transition_sums transitions;
    fl_recovery_sums losses; /* n_losses to lost_us alone; the rest is 0 */

    /* tuning */
    fl_tune tune;
    fl_tune_sums tune_sums;
    int n_tuned;
    fl_tuned tuned[FL_MAX_TUNED]; /* what the run has learned, with what its profile had */

    /* progress. Without its window; first_us and last_us count from the start of the run */
    fl_run_stats stats;
    int64_t elapsed_us; /* since the start of the run */

    /* fields of the job as commands have set them */
    double lr, alpha;
    int64_t m;
} fl_controller_state;

/* Its members, for fl_struct_json_read and fl_struct_json_write. */
extern const fl_member fl_controller_state_members[];

/* FL_EFORMAT if a value that was read is not the state of any run: numbers that each are in range,
 * but do not agree with each other. where: names the state in messages. */
fl_status fl_controller_state_check(const fl_controller_state *state,
                                    const char *where) FL_MUST_CHECK;

/* The state after stats->steps steps. start_us: when the run began, by the clock of now_us. */
void fl_controller_state_capture(const fl_elastic *elastic, int64_t start_us, int64_t now_us,
                                 fl_controller_state *out);

/* Set the opened parts of a controller to the state after `step` steps. *losses knows more than the
 * state does if the run went back to it: each sum becomes at least that of the state. The plan
 * stays that of the options, and n_steps that of the run: the caller has chosen them. state->parked
 * and state->usable.drained name workers of that plan. start_us  as above: the run then began
 * state->elapsed_us ago */
void fl_controller_state_restore(const fl_controller_state *state, int64_t step, int64_t start_us,
                                 fl_elastic *elastic, fl_run_stats *stats,
                                 fl_recovery_sums *losses);

#endif
