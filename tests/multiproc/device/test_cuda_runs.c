/* Whole runs with `devices: {kind: cuda}` on the stand-in for a GPU, or with FL_TEST_GPU on a GPU:
 * real workers, each with the plugin loaded, its memory, streams and kernels. Catches a loss that
 * differs from the CPU's, a call whose failure does not end the run with its reason, and a command
 * that does not refuse a machine that cannot do the job. */
#include "support/data/text.h"
#include "support/data/toy.h"
#include "support/device/cuda_plugin.h"
#include "support/lines.h"
#include "support/program.h"
#include "support/runs/scenario.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 24, BATCH = 12, STEPS = 4 };

static const double TOLERANCE = 1e-5;

static const char *const common[] = {
    "train.batch",    "12",    "train.epochs", "2", "train.lr", "1e-3",
    "train.evaluate", "false", "pipe.m",       "2", NULL};

/* ---- the CPU's losses ---- */

/* Run `s` on a CPU and on the stand-in, whose fields have `gpu` beside; *s is the latter. The
 * losses are at most `tolerance` and at least `least` apart. */
static void compare_within(scenario *s, int n_steps, const char *const *gpu, double least,
                           double tolerance)
{
    char name[2][48];
    scenario cpu = *s;
    snprintf(name[0], sizeof name[0], "%s-cpu", s->name);
    snprintf(name[1], sizeof name[1], "%s-cuda", s->name);
    cpu.name = name[0];
    cpu.device = "cpu";
    s->name = name[1];
    s->device = "cuda";
    s->more = gpu == NULL ? s->more : gpu;
    scenario_run(&cpu);
    scenario_run(s);
    double *want = losses_of(&cpu, n_steps), *got = losses_of(s, n_steps);
    double worst = worst_difference(got, want, 0, n_steps);
    if (!(worst >= least && worst <= tolerance)) {
        fail_msg("%s: a loss differs from the CPU's by %.3g", s->name, worst);
    }
    assert_true(want[n_steps - 1] < want[0]); /* it learns */
    free(want);
    free(got);
}

static void compare_devices(scenario *s, int n_steps)
{
    compare_within(s, n_steps, NULL, 0.0, TOLERANCE);
}

/* ---- train.precision ---- */

static fl_status make_typed(fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)dataset;
    fl_model_destroy(model);
    return fl_toy_model_of(1, 0.1f, fl_job_dtype(job), model);
}

static void test_cuda_run__has_the_losses_of_a_cpu_in_bf16(void **state)
{
    (void)state;
    use_cuda("devices=1");
    scenario s = {.name = "bf16",
                  .sets = common,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "1", "devices.count", "1",
                                   "train.precision", "bf16"),
                  .n_samples = N_SAMPLES,
                  .adjust = make_typed};
    compare_within(&s, STEPS, NULL, 0.0, 1e-2);
}

/* The stand-in's library rounds to TF32 as the real one does. */
static void test_cuda_run__rounds_to_tf32_where_the_job_says_so(void **state)
{
    (void)state;
    use_cuda("devices=1");
    scenario s = {.name = "tf32",
                  .sets = common,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "1", "devices.count", "1"),
                  .n_samples = N_SAMPLES,
                  .blocks = 1};
    compare_within(
        &s, STEPS,
        JOB_SETS("pipe.k", "1", "autodp.r", "1", "devices.count", "1", "train.precision", "tf32"),
        1e-6, 1e-2);
}

/* ---- fp32 ---- */

/* What the worker told at the end of the last epoch. */
static void check_graphs(const char *dir)
{
    json_t *told = lines_with(dir, "events.jsonl", "\"graphs\"");
    const json_t *last = json_array_get(told, json_array_size(told) - 1);
    const json_t *shape = json_array_get(json_object_get(last, "by_shape"), 0);
    assert_string_equal(json_string_value(json_object_get(last, "state")), "on");
    assert_true(json_integer_value(json_object_get(last, "captures")) > 0);
    assert_true(json_integer_value(json_object_get(last, "launches")) > 0);
    assert_true(json_integer_value(json_object_get(last, "calls")) > 0);
    assert_int_equal(json_integer_value(json_object_get(shape, "samples")), 6);
    json_decref(told);
}

static void test_cuda_run__has_the_losses_of_a_cpu(void **state)
{
    (void)state;
    use_cuda("devices=2");
    scenario s = {.name = "vit",
                  .sets = common,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "1", "devices.count", "1"),
                  .n_samples = N_SAMPLES,
                  .blocks = 1,
                  .dropout = 0.1f};
    compare_devices(&s, STEPS);
    json_t *started = lines_with(s.dir, "events.jsonl", "\"run.started\"");
    const json_t *event = json_array_get(started, 0);
    assert_string_equal(json_string_value(json_object_get(event, "device_kind")), "cuda");
    if (!on_gpu()) {
        assert_string_equal(json_string_value(json_object_get(event, "kernels")), "Stand-in");
    }
    check_graphs(s.dir);
    const json_t *worker = json_array_get(json_object_get(event, "workers"), 0);
    assert_int_equal(json_integer_value(json_object_get(worker, "gpu")), 0);
    json_decref(started);
}

static fl_status make_gpt2(fl_job *job, fl_model **model, fl_dataset *dataset)
{
    const fl_gpt2_config config = {.vocabulary = TEXT_IDS,
                                   .positions = TEXT_LONGEST,
                                   .dim = 16,
                                   .heads = 2,
                                   .blocks = 1,
                                   .embedding_dropout = 0.1f,
                                   .attention_dropout = 0.1f,
                                   .dropout = 0.1f};
    (void)job;
    fl_model_destroy(model);
    fl_dataset_destroy(dataset);
    FL_TRY(text_dataset(N_SAMPLES, dataset));
    return fl_model_gpt2(&config, model);
}

/* Two workers on two devices, which send each other activations and gradients. */
static void test_cuda_run__pipelines_text_as_a_cpu_does(void **state)
{
    (void)state;
    use_cuda("devices=2");
    scenario s = {.name = "gpt2",
                  .sets = common,
                  .more = JOB_SETS("pipe.k", "2", "autodp.r", "1", "devices.count", "2"),
                  .n_samples = N_SAMPLES,
                  .adjust = make_gpt2};
    compare_devices(&s, STEPS);
}

/* ---- fine-tuning, as a user does it ---- */

#define REFERENCE FL_SOURCE_DIR "/tests/reference"

static void write_job(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.yaml", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "name: %s\n%s"
            "devices: {count: 1, cores: 1, memory: 64MiB}\n"
            "checkpoint: {every: none}\nrun: {save_model: false}\n",
            name, text);
    assert_int_equal(fclose(file), 0);
}

enum { STEPS_MAX = 32 };

/* The gradient norms of a run: of all parameters of a whole model. */
static void read_norms(const char *dir, int n_steps, double *norm)
{
    json_t *steps = lines_with(dir, "steps.jsonl", "");
    assert_int_equal(length(steps), n_steps);
    for (int i = 0; i < n_steps; i++) {
        norm[i] = json_number_value(json_object_get(json_array_get(steps, (size_t)i), "grad_norm"));
        assert_true(norm[i] > 0.0);
    }
    json_decref(steps);
}

/* Run root/NAME.yaml on both, and compare the loss and the gradient norm of each of its n_steps
 * steps. */
static void fine_tune(const char *name, int n_steps)
{
    double loss[2][STEPS_MAX], norm[2][STEPS_MAX];
    static const char *const kinds[] = {"cpu", "cuda"};
    assert_in_range(n_steps, 2, STEPS_MAX);
    for (int i = 0; i < 2; i++) {
        char dir[256];
        program_run(root, 0, "run %s.yaml --run-dir %s-%s --set devices.kind=%s", name, name,
                    kinds[i], kinds[i]);
        snprintf(dir, sizeof dir, "%s/%s-%s", root, name, kinds[i]);
        assert_int_equal(fl_toy_losses(dir, loss[i], STEPS_MAX), n_steps);
        read_norms(dir, n_steps, norm[i]);
    }
    double worst = worst_difference(loss[1], loss[0], 0, n_steps);
    double of_norms = worst_difference(norm[1], norm[0], 0, n_steps);
    print_message("%s: %d steps from %.6f to %.6f; worst %.2e, of gradients %.2e\n", name, n_steps,
                  loss[0][0], loss[0][n_steps - 1], worst, of_norms);
    if (!(worst <= TOLERANCE && of_norms <= TOLERANCE)) {
        fail_msg("%s: a loss differs from the CPU's by %.3g, a gradient norm by %.3g", name, worst,
                 of_norms);
    }
}

/* A folder of Hugging Face's, its tokenizer, a table of texts, dropout, clipping, AdamW. */
static void test_cuda_run__fine_tunes_bert_as_a_cpu_does(void **state)
{
    (void)state;
    use_cuda("devices=1");
    write_job("bert",
              "model: {kind: hf, path: " REFERENCE "/hf_bert/base}\n"
              "data: {kind: table, path: {train: " REFERENCE "/hf_bert/train.tsv, test: " REFERENCE
              "/hf_bert/test.tsv}, text: sentence, label: label, max_tokens: 40}\n"
              "train: {epochs: 1, batch: 16, lr: 1e-3, weight_decay: 0.01, max_steps: 6, "
              "evaluate: false}\n");
    fine_tune("bert", 6);
}

/* Tied weights, causal attention over whole blocks of a text, the tanh form of GELU. */
static void test_cuda_run__fine_tunes_gpt2_as_a_cpu_does(void **state)
{
    (void)state;
    use_cuda("devices=1");
    write_job("hf-gpt2",
              "model: {kind: hf, path: " REFERENCE "/hf_gpt2/model}\n"
              "data: {kind: text, path: {train: " REFERENCE "/hf_gpt2/text.txt, test: " REFERENCE
              "/hf_gpt2/text.txt}, max_tokens: 16}\n"
              "train: {epochs: 4, batch: 4, lr: 1e-3, max_steps: 6, evaluate: false}\n");
    fine_tune("hf-gpt2", 6);
}

/* ---- cuBLASLt's answers ---- */

static int64_t size_of(const char *name)
{
    char path[256];
    struct stat what;
    snprintf(path, sizeof path, "%s/%s", root, name);
    return stat(path, &what) == 0 ? (int64_t)what.st_size : 0;
}

static int unlink_in_root(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return unlink(path);
}

/* Would catch: a run that does not read what the one before it has kept; one that keeps nothing;
 * answers of another version that are believed. */
static void test_cuda_run__asks_the_library_once_for_all_runs(void **state)
{
    (void)state;
    char options[256];
    snprintf(options, sizeof options, "devices=1,asked=%s/asked", root);
    use_standin(options);
    write_job("asks", "model: {kind: hf, path: " REFERENCE "/hf_gpt2/model}\n"
                      "data: {kind: text, path: {train: " REFERENCE
                      "/hf_gpt2/text.txt, test: " REFERENCE "/hf_gpt2/text.txt}, max_tokens: 16}\n"
                      "train: {epochs: 1, batch: 7, evaluate: false}\n"
                      "pipe: {profile: costs.yaml}\n");
    static const char command[] = "run asks.yaml --run-dir asks-%d --set devices.kind=cuda "
                                  "--set run.save_model=true";
    static const char predict[] = "predict asks-1 --set devices.kind=cuda --out told-%d.jsonl";
    program_run(root, 0, command, 1);
    int64_t first = size_of("asked");
    assert_true(first > 0);
    assert_true(size_of("costs.yaml.algorithms") > 0);
    program_run(root, 0, command, 2);
    assert_int_equal(size_of("asked"), first);
    program_run(root, 0, "evaluate asks-1 --json --set devices.kind=cuda"); /* its own shapes */
    int64_t then = size_of("asked");
    program_run(root, 0, "evaluate asks-1 --json --set devices.kind=cuda");
    assert_int_equal(size_of("asked"), then);
    program_run(root, 0, command, 4);
    assert_int_equal(size_of("asked"), then);
    program_run(root, 0, predict, 1); /* without a loss, in micro-batches of its own */
    int64_t later = size_of("asked");
    program_run(root, 0, predict, 2);
    assert_int_equal(size_of("asked"), later);
    assert_int_equal(unlink_in_root("costs.yaml.algorithms"), 0); /* which predict had used */
    program_run(root, 0, predict, 3);
    then = size_of("asked");
    assert_true(then > later);
    snprintf(options, sizeof options, "devices=1,version=130200,asked=%s/asked", root);
    use_standin(options);
    program_run(root, 0, command, 3);
    assert_true(size_of("asked") > then);
}

/* ---- commands on a machine that cannot do it ---- */

static output result;

static void refused(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command,
             "FROSTLINE_STANDIN=count_code=35 XDG_CACHE_HOME=cache " FL_BINARY_DIR "/frostline %s",
             arguments);
    run_command(root, command, &result);
    if (result.exit_code != 2 ||
        strstr(result.err, "devices.kind: no NVIDIA driver, or one too old") == NULL ||
        strchr(result.err, '\n') != strrchr(result.err, '\n')) {
        fail_msg("%s: exit code %d: %s", arguments, result.exit_code, result.err);
    }
    assert_string_equal(result.out, "");
}

/* A job on a GPU, and what a run of it on a CPU has left. */
static void make_saved_model(void)
{
    if (access(FL_TEST_FASHION "/train-images-idx3-ubyte", R_OK) != 0) {
        skip();
    }
    run_command(
        root,
        "test -d saved || (printf 'name: small\\n"
        "model: {kind: vit, patch: 14, dim: 16, heads: 2, blocks: 1}\\n"
        "data: {kind: idx, path: " FL_TEST_FASHION ", samples: 60}\\n"
        "train: {batch: 20, epochs: 1, evaluate: false}\\n"
        "devices: {count: 1, kind: cuda}\\n' >job.yaml && XDG_CACHE_HOME=cache " FL_BINARY_DIR
        "/frostline run job.yaml --set devices.kind=cpu --run-dir saved)",
        &result);
    assert_int_equal(result.exit_code, 0);
}

static void test_cuda_commands__refuse_a_machine_without_a_driver(void **state)
{
    (void)state;
    use_standin("");
    make_saved_model();
    refused("run job.yaml --run-dir refused");
    refused("plan job.yaml");
    refused("validate job.yaml");
    refused("evaluate saved --set devices.kind=cuda");
    refused("predict saved --set devices.kind=cuda --out predictions.jsonl");
    run_command(root, "ls -d refused predictions.jsonl*", &result);
    assert_string_equal(result.out, ""); /* nothing is half-written */
}

/* It has the memory when it is looked at, and not when its budget is taken. */
static void test_cuda_commands__refuse_a_gpu_that_runs_out_of_memory(void **state)
{
    (void)state;
    use_standin("fail=pool_take:1:2");
    make_saved_model();
    run_command(root,
                "XDG_CACHE_HOME=no-profile " FL_BINARY_DIR
                "/frostline run job.yaml --run-dir refused",
                &result);
    assert_int_equal(result.exit_code, 2);
    assert_non_null(strstr(result.err, "pool_take: out of memory"));
}

/* The lines of `frostline evaluate` that say how good the model is. */
static void evaluate(const char *kind, char *text, size_t size_bytes)
{
    char command[512];
    snprintf(command, sizeof command,
             FL_BINARY_DIR "/frostline evaluate saved --split train --set devices.kind=%s | "
                           "grep -E 'accuracy|loss'",
             kind);
    run_command(root, command, &result);
    snprintf(text, size_bytes, "%s", result.out);
    assert_non_null(strstr(text, "loss"));
}

static void test_cuda_commands__use_a_saved_model_as_on_a_cpu(void **state)
{
    (void)state;
    use_cuda("");
    char of_cpu[256], of_gpu[256];
    make_saved_model();
    evaluate("cpu", of_cpu, sizeof of_cpu);
    evaluate("cuda", of_gpu, sizeof of_gpu);
    assert_string_equal(of_gpu, of_cpu);
}

static void test_cuda_commands__plan_names_the_devices(void **state)
{
    (void)state;
    use_standin("devices=2");
    make_saved_model();
    run_command(root,
                "XDG_CACHE_HOME=cache " FL_BINARY_DIR
                "/frostline plan job.yaml --set devices.count=3",
                &result);
    assert_int_equal(result.exit_code, 0);
    assert_non_null(
        strstr(result.out, "\ndevices: 3 workers on 2 x Stand-in, worker w on GPU w % 2\n"));
}

/* Would catch: two workers that are predicted to be twice as fast as one on the same GPU. */
static void test_cuda_commands__plan_knows_that_workers_share_a_gpu(void **state)
{
    (void)state;
    use_standin("devices=1");
    make_saved_model();
    run_command(root,
                "XDG_CACHE_HOME=cache " FL_BINARY_DIR
                "/frostline plan job.yaml --set devices.count=2",
                &result);
    assert_int_equal(result.exit_code, 0);
    if (strstr(result.out, "\nplan: F=0, K=1 x R=1 x") == NULL) {
        fail_msg("%s", result.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_run__has_the_losses_of_a_cpu),
        cmocka_unit_test(test_cuda_run__has_the_losses_of_a_cpu_in_bf16),
        cmocka_unit_test(test_cuda_run__rounds_to_tf32_where_the_job_says_so),
        cmocka_unit_test(test_cuda_run__pipelines_text_as_a_cpu_does),
        cmocka_unit_test(test_cuda_run__fine_tunes_bert_as_a_cpu_does),
        cmocka_unit_test(test_cuda_run__fine_tunes_gpt2_as_a_cpu_does),
        cmocka_unit_test(test_cuda_run__asks_the_library_once_for_all_runs),
        cmocka_unit_test(test_cuda_commands__refuse_a_machine_without_a_driver),
        cmocka_unit_test(test_cuda_commands__refuse_a_gpu_that_runs_out_of_memory),
        cmocka_unit_test(test_cuda_commands__use_a_saved_model_as_on_a_cpu),
        cmocka_unit_test(test_cuda_commands__plan_names_the_devices),
        cmocka_unit_test(test_cuda_commands__plan_knows_that_workers_share_a_gpu),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
