/* frostline evaluate: loss and metrics of a saved model. */
#include "control/events/json.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/use_args.h"
#include "launcher/run/pass_run.h"
#include "nn/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static double samples_per_s(const fl_eval_report *r)
{
    return r->ms > 0 ? (double)r->samples / r->ms * 1e3 : 0;
}

/* The file or folder that the samples come from. */
static const char *data_path(const fl_use *use)
{
    return use->split == FL_TEST && use->job.data.test_path[0] != '\0' ? use->job.data.test_path
                                                                       : use->job.data.path;
}

/* Where the samples come from: a plugin may have a data set of its own. */
static const char *name_data(const fl_use *use, char text[FL_TEXT_MAX])
{
    const char *kind = use->whole.ops->kind;
    static const char *const own[] = {"idx", "table", "text", "squad", "images"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(kind, own[i]) == 0) {
            return data_path(use);
        }
    }
    snprintf(text, FL_TEXT_MAX, "the plugin's data (%.64s)", kind);
    return text;
}

static void warn_of_nonfinite(const fl_eval_report *r)
{
    if (!isfinite(r->loss)) {
        fl_complain("warning: the loss is not finite: outputs of the model are infinite or NaN, "
                    "and its metrics mean nothing");
    }
}

static void print_text(const char *name, const fl_use *use, const char *split,
                       const fl_pass_result *result)
{
    const fl_eval_report *r = &result->outcome.evaluation;
    const fl_metric_list metrics = fl_model_metrics(use->model);
    char origin[FL_SAVED_ORIGIN_MAX], data[FL_TEXT_MAX];
    char shown[FL_SHELL_PATH_BYTES], shown_data[4 * FL_TEXT_MAX];
    printf("%s: %" PRId64 " %s sample%s of %s\n", fl_shell_shown(name, shown, sizeof shown),
           r->samples, split, fl_plural_ending(r->samples, "sample"),
           fl_shell_shown(name_data(use, data), shown_data, sizeof shown_data));
    printf("  %-14s %s\n", "weights", fl_saved_model_origin(&use->saved, origin));
    for (int i = 0; i < metrics.n && i < r->metrics.n; i++) {
        const fl_metric *m = &metrics.metric[i];
        printf(m->is_share ? "  %-14s %.2f %%\n" : "  %-14s %.4g\n", m->name,
               m->is_share ? 100 * r->metrics.mean[i] : r->metrics.mean[i]);
    }
    printf("  %-14s %.4f\n", "loss", r->loss);
    printf("  %-14s %.1f s, %.0f samples/s\n", "time", r->ms * 1e-3, samples_per_s(r));
    printf("  %-14s K=%d R=%d M=%d\n", "plan", result->K, result->R, result->M);
}

static void print_json(const char *name, const fl_use *use, const char *split,
                       const fl_pass_result *result)
{
    const fl_eval_report *r = &result->outcome.evaluation;
    const fl_metric_list metrics = fl_model_metrics(use->model);
    char data[FL_TEXT_MAX];
    fl_json j = {0};
    fl_json_object(&j, NULL);
    fl_json_text(&j, "model", name);
    fl_json_text(&j, "weights", use->saved.weights);
    if (use->saved.step >= 0) {
        fl_json_integer(&j, "step", use->saved.step);
    }
    fl_json_text(&j, "data", name_data(use, data));
    fl_json_text(&j, "split", split);
    fl_json_integer(&j, "samples", r->samples);
    fl_json_real(&j, "loss", r->loss);
    fl_json_object(&j, "metrics");
    for (int i = 0; i < metrics.n && i < r->metrics.n; i++) {
        fl_json_real(&j, metrics.metric[i].name, r->metrics.mean[i]);
    }
    fl_json_close(&j, '}');
    fl_json_rounded(&j, "seconds", r->ms * 1e-3, 6);
    fl_json_rounded(&j, "samples_per_s", samples_per_s(r), 1);
    fl_json_integer(&j, "k", result->K);
    fl_json_integer(&j, "r", result->R);
    fl_json_integer(&j, "m", result->M);
    fl_json_close(&j, '}');
    fl_json_newline(&j);
    if (!j.broken) {
        fwrite(j.text, 1, j.n, stdout);
    }
    fl_json_fini(&j);
}

static fl_status evaluate_model(const fl_args *args, fl_use *use)
{
    const char *split = fl_args_value(args, "--split");
    const fl_pass_request request = {
        .task = FL_WORKER_EVALUATE, .verb = "evaluating", .out_fd = -1};
    fl_pass_result result;
    FL_TRY(fl_use_open_args(args, false, use));
    FL_TRY(fl_pass_run(use, &request, &result));
    if (!result.outcome.evaluated) {
        return fl_fail(FL_EINTERNAL, "the workers ended without a result");
    }
    (fl_args_has(args, "--json") ? print_json : print_text)(
        args->operand, use, split == NULL ? "test" : split, &result);
    warn_of_nonfinite(&result.outcome.evaluation);
    return FL_OK;
}

static int run_evaluate(const fl_args *args)
{
    fl_use use = {0};
    fl_status status = evaluate_model(args, &use);
    fl_use_fini(&use);
    return fl_use_finish(status);
}

const fl_cli_command fl_cli_command_evaluate = {
    .name = "evaluate",
    .operand = "MODEL [JOB.yaml]",
    .takes_more = true,
    .summary = "Print the loss and the metrics of a saved model.",
    .details = FL_USE_DETAILS
    "The workers, the pipeline and the evaluation are those of a run. Nothing is\n"
    "trained, and no run directory is made. Ctrl-C ends it.\n\n"
    "  frostline evaluate runs/first\n"
    "  frostline evaluate exported --data images --set devices.count=2\n",
    .options = {FL_USE_OPTIONS, {"--json", 0, NULL, "print JSON, for programs"}},
    .run = run_evaluate,
};
