/* The members of the controller's state as a checkpoint's manifest has them. A change here is a new
 * version of the manifest; manifest_read.c completes older ones. */
#include "control/checkpoint/manifest/controller_state.h"
#include "control/checkpoint/manifest/members.h"

/* A struct of another size has a member that these tables do not know. */
_Static_assert(sizeof(fl_norms) == 24 + 3 * 8 * FL_MAX_LAYERS, "see above");
_Static_assert(sizeof(fl_cache_warmup) == 16, "see above");
_Static_assert(sizeof(fl_transition_sums) == 40, "see above");
_Static_assert(sizeof(fl_tuner_visit) == 32, "see above");
_Static_assert(sizeof(fl_tuner_candidate) == 16 + 32 * FL_TUNER_ROUNDS_MAX, "see above");
_Static_assert(sizeof(fl_tuned) == 40, "see above");
_Static_assert(sizeof(fl_tune_sums) == 32, "see above");
_Static_assert(sizeof(fl_early_stop) == 40, "see above");
_Static_assert(sizeof(fl_metric_means) == 8 + 8 * FL_METRICS_MAX, "see above");

static const fl_member a_real[] = {{.name = "", .type = FL_MEMBER_REAL}};
static const fl_member a_bool[] = {{.name = "", .type = FL_MEMBER_BOOL}};
static const fl_member a_rank[] = {
    {.name = "", .type = FL_MEMBER_INT, .least = -1, .most = FL_MAX_WORKERS - 1}};

static const fl_member a_step[] = {
    {.name = "", .type = FL_MEMBER_INT64, .least = 0, .most = INT64_MAX}};

/* ---- what is counted ---- */

static int64_t count_metrics(const void *of)
{
    return ((const fl_metric_means *)of)->n;
}

static const fl_member metric_means[] = {
    FL_M_INT(fl_metric_means, n, 0, FL_METRICS_MAX),
    FL_M_ARRAY(fl_metric_means, mean, a_real, FL_METRICS_MAX, count_metrics),
    {0}};

static const fl_member step_report[] = {FL_M_COUNT(fl_step_report, step),
                                        FL_M_COUNT(fl_step_report, epoch),
                                        FL_M_REAL(fl_step_report, loss),
                                        FL_M_REAL(fl_step_report, grad_norm),
                                        FL_M_REAL(fl_step_report, lr),
                                        FL_M_REAL(fl_step_report, ms),
                                        FL_M_COUNT(fl_step_report, samples),
                                        FL_M_COUNT(fl_step_report, tokens),
                                        FL_M_NATURAL(fl_step_report, generation),
                                        FL_M_INT(fl_step_report, f, 0, FL_MAX_LAYERS),
                                        FL_M_INT(fl_step_report, k, 0, FL_MAX_STAGES),
                                        FL_M_INT(fl_step_report, r, 0, FL_MAX_WORKERS),
                                        FL_M_INT(fl_step_report, m, 0, FL_MAX_MICRO_BATCHES),
                                        FL_M_OBJECT(fl_step_report, metrics, metric_means),
                                        FL_M_TRUTH(fl_step_report, skipped),
                                        {0}};

static const fl_member eval_report[] = {FL_M_COUNT(fl_eval_report, epoch),
                                        FL_M_COUNT(fl_eval_report, step),
                                        FL_M_REAL(fl_eval_report, loss),
                                        FL_M_REAL(fl_eval_report, ms),
                                        FL_M_OBJECT(fl_eval_report, metrics, metric_means),
                                        FL_M_COUNT(fl_eval_report, samples),
                                        FL_M_TRUTH(fl_eval_report, validation),
                                        FL_M_TRUTH(fl_eval_report, has_test),
                                        FL_M_REAL(fl_eval_report, test_loss),
                                        FL_M_OBJECT(fl_eval_report, test_metrics, metric_means),
                                        FL_M_COUNT(fl_eval_report, test_samples),
                                        {0}};

static const fl_member epoch_stats[] = {
    FL_M_COUNT(fl_epoch_stats, epoch),
    FL_M_SUM(fl_epoch_stats, steps),
    FL_M_SUM(fl_epoch_stats, samples),
    FL_M_SUM(fl_epoch_stats, n_skipped),
    FL_M_REAL(fl_epoch_stats, loss_sum),
    FL_M_ARRAY(fl_epoch_stats, metric_sum, a_real, FL_METRICS_MAX, NULL),
    FL_M_REAL(fl_epoch_stats, ms),
    FL_M_TRUTH(fl_epoch_stats, evaluated),
    FL_M_OBJECT(fl_epoch_stats, eval, eval_report),
    {0}};

static const fl_member early_stop[] = {
    FL_M_COUNT(fl_early_stop, judged),     FL_M_COUNT(fl_early_stop, best_step),
    FL_M_COUNT(fl_early_stop, best_epoch), FL_M_REAL(fl_early_stop, best),
    FL_M_COUNT(fl_early_stop, end_step),   {0}};

static const fl_member run_stats[] = {FL_M_COUNT(fl_run_stats, n_steps),
                                      FL_M_COUNT(fl_run_stats, n_epochs),
                                      FL_M_COUNT(fl_run_stats, steps_per_epoch),
                                      FL_M_COUNT(fl_run_stats, steps),
                                      FL_M_SUM(fl_run_stats, n_skipped),
                                      FL_M_SUM(fl_run_stats, epochs),
                                      FL_M_OBJECT(fl_run_stats, last, step_report),
                                      FL_M_OBJECT(fl_run_stats, now, epoch_stats),
                                      FL_M_OBJECT(fl_run_stats, past, epoch_stats),
                                      FL_M_OBJECT(fl_run_stats, last_eval, eval_report),
                                      FL_M_TRUTH(fl_run_stats, any_eval),
                                      FL_M_OBJECT(fl_run_stats, stop, early_stop),
                                      FL_M_SUM(fl_run_stats, samples),
                                      FL_M_SUM(fl_run_stats, tokens),
                                      FL_M_REAL(fl_run_stats, step_ms),
                                      FL_M_NUMBER(fl_run_stats, first_us),
                                      FL_M_NUMBER(fl_run_stats, last_us),
                                      FL_M_REAL(fl_run_stats, eval_ms),
                                      FL_M_REAL(fl_run_stats, pending_eval_ms),
                                      FL_M_SUM(fl_run_stats, n_window),
                                      {0}};

/* ---- freezing ---- */

static int64_t count_blocks(const void *of)
{
    return ((const fl_norms *)of)->L;
}

static const fl_member norms[] = {FL_M_INT(fl_norms, L, 0, FL_MAX_LAYERS),
                                  FL_M_COUNT(fl_norms, n_steps),
                                  FL_M_INT(fl_norms, n_intervals, 0, 2),
                                  FL_M_ARRAY(fl_norms, sum, a_real, FL_MAX_LAYERS, count_blocks),
                                  FL_M_ARRAY(fl_norms, norm, a_real, FL_MAX_LAYERS, count_blocks),
                                  FL_M_ARRAY(fl_norms, before, a_real, FL_MAX_LAYERS, count_blocks),
                                  {0}};

static const fl_member warmup[] = {FL_M_INT(fl_cache_warmup, F, 0, FL_MAX_LAYERS),
                                   FL_M_INT(fl_cache_warmup, kept, 0, FL_MAX_LAYERS),
                                   FL_M_COUNT(fl_cache_warmup, since),
                                   {0}};

/* ---- plans ---- */

static const fl_member transition_sums[] = {
    FL_M_COUNT(fl_transition_sums, n_committed), FL_M_COUNT(fl_transition_sums, n_cancelled),
    FL_M_COUNT(fl_transition_sums, stall_us),    FL_M_COUNT(fl_transition_sums, last_stall_us),
    FL_M_COUNT(fl_transition_sums, moved_bytes), {0}};

static const fl_member losses[] = {
    FL_M_SUM(fl_recovery_sums, n_losses),  FL_M_SUM(fl_recovery_sums, n_recoveries),
    FL_M_SUM(fl_recovery_sums, n_returns), FL_M_SUM(fl_recovery_sums, n_repeated),
    FL_M_SUM(fl_recovery_sums, lost_us),   {0}};

/* ---- tuning ---- */

static const fl_member tuner_visit[] = {FL_M_REAL(fl_tuner_visit, step_us),
                                        FL_M_COUNT(fl_tuner_visit, n_steps),
                                        FL_M_REAL(fl_tuner_visit, elapsed_us),
                                        FL_M_REAL(fl_tuner_visit, stall_us),
                                        {0}};
static const fl_member a_visit[] = {{.name = "", .type = FL_MEMBER_OBJECT, .of = tuner_visit}};

static int64_t count_visits(const void *of)
{
    return ((const fl_tuner_candidate *)of)->n_visits;
}

static const fl_member tuner_candidate[] = {
    FL_M_INT(fl_tuner_candidate, M, 0, FL_MAX_MICRO_BATCHES),
    FL_M_TRUTH(fl_tuner_candidate, dropped),
    FL_M_INT(fl_tuner_candidate, n_visits, 0, FL_TUNER_ROUNDS_MAX),
    FL_M_ARRAY(fl_tuner_candidate, visit, a_visit, FL_TUNER_ROUNDS_MAX, count_visits),
    {0}};
static const fl_member a_candidate[] = {
    {.name = "", .type = FL_MEMBER_OBJECT, .of = tuner_candidate}};

static int64_t count_candidates(const void *of)
{
    return ((const fl_tuner *)of)->n;
}

static const fl_member tuner[] = {
    FL_M_INT(fl_tuner, n, 0, FL_TUNER_CANDIDATES_MAX),
    FL_M_ARRAY(fl_tuner, of, a_candidate, FL_TUNER_CANDIDATES_MAX, count_candidates),
    FL_M_REAL(fl_tuner, budget_us),
    FL_M_INT(fl_tuner, round, 0, FL_TUNER_ROUNDS_MAX),
    FL_M_INT(fl_tuner, leader, 0, FL_TUNER_CANDIDATES_MAX - 1),
    FL_M_INT(fl_tuner, at, 0, FL_TUNER_CANDIDATES_MAX - 1),
    FL_M_INT(fl_tuner, end, FL_TUNER_RUNS, FL_TUNER_STEPS),
    {0}};

static const fl_member tune[] = {FL_M_INT(fl_tune, F, 0, FL_MAX_LAYERS),
                                 FL_M_INT(fl_tune, K, 0, FL_MAX_STAGES),
                                 FL_M_INT(fl_tune, R, 0, FL_MAX_WORKERS),
                                 FL_M_TRUTH(fl_tune, racing),
                                 FL_M_NATURAL(fl_tune, runs),
                                 FL_M_NATURAL(fl_tune, visited),
                                 FL_M_NATURAL(fl_tune, asked),
                                 FL_M_COUNT(fl_tune, from),
                                 FL_M_COUNT(fl_tune, started),
                                 FL_M_OBJECT(fl_tune, tuner, tuner),
                                 {0}};

static const fl_member tune_sums[] = {FL_M_COUNT(fl_tune_sums, n_races),
                                      FL_M_COUNT(fl_tune_sums, n_visits),
                                      FL_M_COUNT(fl_tune_sums, n_steps),
                                      FL_M_REAL(fl_tune_sums, lost_us),
                                      {0}};

static const fl_member tuned[] = {FL_M_COUNT(fl_tuned, batch),
                                  FL_M_INT(fl_tuned, F, 0, FL_MAX_LAYERS),
                                  FL_M_INT(fl_tuned, K, 1, FL_MAX_STAGES),
                                  FL_M_INT(fl_tuned, R, 1, FL_MAX_WORKERS),
                                  FL_M_INT(fl_tuned, M, 1, FL_MAX_MICRO_BATCHES),
                                  FL_M_INT(fl_tuned, settled, 0, 1),
                                  FL_M_REAL(fl_tuned, step_us),
                                  {0}};
static const fl_member a_tuned[] = {{.name = "", .type = FL_MEMBER_OBJECT, .of = tuned}};

/* ---- the whole ---- */

static int64_t count_layers(const void *of)
{
    return ((const fl_controller_state *)of)->n_layers;
}

static int64_t count_pinned(const void *of)
{
    return ((const fl_controller_state *)of)->norms.L;
}

static int64_t count_workers(const void *of)
{
    return ((const fl_controller_state *)of)->n_workers;
}

static int64_t count_tuned(const void *of)
{
    return ((const fl_controller_state *)of)->n_tuned;
}

const fl_member fl_controller_state_members[] = {
    FL_M_INT(fl_controller_state, n_workers, 1, FL_MAX_WORKERS),
    FL_M_INT(fl_controller_state, n_layers, 0, FL_MAX_LAYERS),
    FL_M_OBJECT(fl_controller_state, norms, norms),
    FL_M_COUNT(fl_controller_state, heard),
    {.name = "due_at",
     .type = FL_MEMBER_INT64,
     .offset = offsetof(fl_controller_state, due_at),
     .least = -1,
     .most = INT64_MAX},
    FL_M_TRUTH(fl_controller_state, started),
    FL_M_ARRAY(fl_controller_state, pinned, a_bool, FL_MAX_LAYERS, count_pinned),
    FL_M_ARRAY(fl_controller_state, parked, a_rank, FL_MAX_LAYERS, count_layers),
    FL_M_ARRAY(fl_controller_state, since, a_step, FL_MAX_LAYERS, count_layers),
    FL_M_OBJECT(fl_controller_state, warming, warmup),
    {.name = "devices",
     .type = FL_MEMBER_INT,
     .offset = offsetof(fl_controller_state, usable.limit),
     .least = 0,
     .most = FL_MAX_WORKERS},
    {.name = "drained",
     .type = FL_MEMBER_ARRAY,
     .offset = offsetof(fl_controller_state, usable.drained),
     .of = a_bool,
     .capacity = FL_MAX_WORKERS,
     .item_bytes = sizeof(bool),
     .count = count_workers},
    FL_M_INT(fl_controller_state, wanted_k, -1, FL_MAX_STAGES),
    FL_M_INT(fl_controller_state, wanted_r, -1, FL_MAX_WORKERS),
    FL_M_INT(fl_controller_state, n_started, 0, FL_MAX_WORKERS),
    FL_M_NATURAL(fl_controller_state, last_asked),
    FL_M_OBJECT(fl_controller_state, transitions, transition_sums),
    FL_M_OBJECT(fl_controller_state, losses, losses),
    FL_M_OBJECT(fl_controller_state, tune, tune),
    FL_M_OBJECT(fl_controller_state, tune_sums, tune_sums),
    FL_M_INT(fl_controller_state, n_tuned, 0, FL_MAX_TUNED),
    FL_M_ARRAY(fl_controller_state, tuned, a_tuned, FL_MAX_TUNED, count_tuned),
    FL_M_OBJECT(fl_controller_state, stats, run_stats),
    FL_M_COUNT(fl_controller_state, elapsed_us),
    FL_M_REAL(fl_controller_state, lr),
    FL_M_REAL(fl_controller_state, alpha),
    FL_M_COUNT(fl_controller_state, m),
    {0}};
