/* Profile files: what is written reads back the same, and nothing else reads at all. */
#include "launcher/run/costs/profile_file.h"

#include "launcher/run/costs/profile_fields.h"
#include "nn/model.h"
#include "support/data/toy.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_MAX = 1 << 16, BLOCKS = 2 };

static const fl_device_survey processors = {.kind = FL_DEVICE_CPU};
static const fl_nccl_trial no_nccl = {.reason = "there is none"};

typedef struct rig {
    fl_model *model;
    fl_profile_key key;
    fl_profile_about about;
    fl_profile profile, back;
    fl_profile_about about_back;
    char *folder, path[512];
    char text[TEXT_MAX]; /* of the file that write_file wrote */
    size_t n;
} rig;

static void draw_profile(rig *r)
{
    fl_profile *p = &r->profile;
    *p = (fl_profile){.n_layers = fl_model_n_layers(r->model),
                      .live_steps = 40,
                      .in_bytes = 784,
                      .loss_call_us = 1.0 / 3.0,
                      .loss_us = 1e-7,
                      .optimizer_us_per_param = 4.9e-4,
                      .peak_flops_per_us = 98765.4,
                      .read = {.call_us = 0.25, .us_per_byte = 1e-4},
                      .link_us = 45.9,
                      .link_bytes_per_us = 1e5,
                      .reduce_bytes_per_us = 0.1,
                      .reduce_cpu_share = 0.7,
                      .graph_layer_bytes = 123456,
                      .n_tuned = 2};
    p->tuned[0] =
        (fl_tuned){.batch = 128, .F = 0, .K = 2, .R = 1, .M = 6, .settled = 1, .step_us = 40123.4};
    p->tuned[1] = (fl_tuned){.batch = 64, .F = 1, .K = 1, .R = 2, .M = 2, .step_us = 1.0 / 7.0};
    for (int i = 0; i < p->n_layers; i++) {
        double odd = i + 1.0 / 3.0;
        p->layer[i] = (fl_layer_cost){.fwd_call_us = odd,
                                      .fwd_us = 2 * odd,
                                      .bwd_call_us = 0.0,
                                      .bwd_us = 3 * odd,
                                      .frozen_call_us = odd,
                                      .frozen_us = odd / 2,
                                      .fwd_token_us = odd / 3,
                                      .bwd_token_us = odd / 5,
                                      .frozen_token_us = odd / 7,
                                      .out_bytes = 64,
                                      .kept_bytes = INT64_C(1) << 40,
                                      .scratch_bytes = 0,
                                      .n_params = fl_model_layer_n_params(r->model, i)};
    }
}

static void make_key(rig *r)
{
    static fl_layer_memory memory[FL_MAX_LAYERS];
    fl_shape image = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};
    fl_job job = {.devices = {.cores = 1}};
    assert_int_equal(fl_memory_measure(r->model, &(fl_sample_shape){image, 1, FL_I32}, 1, memory),
                     FL_OK);
    fl_profile_key_of(r->model, &job, memory, NULL, &processors, &no_nccl, 2, &r->key);
}

static void rig_init(rig *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(fl_toy_model(BLOCKS, 0.1f, &r->model), FL_OK);
    draw_profile(r);
    make_key(r);
    snprintf(r->about.measured, sizeof r->about.measured, "2026-11-21T15:44:58Z");
    r->folder = fresh_folder(FL_BINARY_DIR);
    snprintf(r->path, sizeof r->path, "%s/a/b/profile.yaml", r->folder);
}

static void rig_fini(rig *r)
{
    char command[640];
    static output said;
    snprintf(command, sizeof command, "rm -rf '%s'", r->folder);
    run_command(NULL, command, &said);
    free(r->folder);
    fl_model_destroy(&r->model);
}

static void write_file(rig *r)
{
    fl_status status = fl_profile_write(r->path, &r->key, r->model, &r->profile, &r->about);
    if (status != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    FILE *file = fopen(r->path, "re");
    assert_non_null(file);
    r->n = fread(r->text, 1, sizeof r->text - 1, file);
    r->text[r->n] = '\0';
    fclose(file);
}

static fl_status parse(rig *r, const char *text, size_t n)
{
    return fl_profile_parse("p.yaml", text, n, &r->key, r->model, &r->back, &r->about_back);
}

static void test_profile_file__reads_back_what_was_written(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    for (int i = 0; i < 2; i++) { /* the second time over the first */
        write_file(&r);
        fl_status status = fl_profile_read(r.path, &r.key, r.model, &r.back, &r.about_back);
        if (status != FL_OK) {
            fail_msg("%s", fl_errmsg());
        }
        assert_memory_equal(&r.back, &r.profile, sizeof r.profile);
        assert_string_equal(r.about_back.measured, r.about.measured);
        r.profile.live_steps++;
        r.profile.n_tuned = 0;
        memset(r.profile.tuned, 0, sizeof r.profile.tuned);
    }
    rig_fini(&r);
}

/* Would catch: costs of another build that pass for those of this one once they are written again,
 * and a text of the file that breaks the next one. */
static void test_profile_file__keeps_the_program_that_measured(void **state)
{
    (void)state;
    static rig r;
    static fl_profile_key any_build;
    rig_init(&r);
    snprintf(r.about.program, sizeof r.about.program, "another build");
    write_file(&r);
    assert_int_equal(parse(&r, r.text, r.n), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "of another program: 'another build'"));
    any_build = r.key;
    any_build.name[FL_PROFILE_KEY_PROGRAM] = NULL;
    char *program = strstr(r.text, "another build");
    assert_non_null(program);
    memcpy(program, "\\\"other bu\\\"", strlen("another build") - 1);
    assert_int_equal(
        fl_profile_parse("p", r.text, r.n, &any_build, r.model, &r.back, &r.about_back), FL_OK);
    assert_string_equal(r.about_back.program, "?other bu?d");
    rig_fini(&r);
}

/* A file of the format before costs of tokens is still read; they are 0 then. */
static void test_profile_file__reads_the_format_before(void **state)
{
    (void)state;
    static rig r;
    static char old[TEXT_MAX];
    size_t n = 0;
    rig_init(&r);
    write_file(&r);
    for (const char *at = r.text; *at != '\0';) {
        const char *tokens = strstr(at, ", fwd_token_us"), *end = NULL;
        size_t length = tokens == NULL ? strlen(at) : (size_t)(tokens - at);
        memcpy(old + n, at, length);
        n += length;
        end = tokens == NULL ? at + length : strchr(tokens, '}');
        at = end;
    }
    char *format = strstr(old, "format: 8");
    assert_non_null(format);
    format[strlen("format: ")] = '4';
    assert_int_equal(parse(&r, old, n), FL_EFORMAT); /* that has costs of tokens */
    format[strlen("format: ")] = '3';
    assert_int_equal(parse(&r, old, n), FL_OK);
    assert_int_equal(r.back.graph_layer_bytes, 0);
    assert_true(r.back.layer[0].fwd_us == r.profile.layer[0].fwd_us);
    assert_true(r.back.layer[0].fwd_token_us == 0.0);
    rig_fini(&r);
}

/* Cut anywhere, as by a full disk: never a profile, and never a crash. */
static void test_profile_file__refuses_every_part_of_one(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    write_file(&r);
    size_t whole = r.n - 1; /* the newline may be missing */
    for (size_t n = 0; n < whole; n++) {
        char *part = malloc(n + 1); /* so that a sanitizer sees what is read beyond it */
        assert_non_null(part);
        memcpy(part, r.text, n);
        assert_int_not_equal(parse(&r, part, n), FL_OK);
        free(part);
    }
    assert_int_equal(r.back.n_layers, 0);
    rig_fini(&r);
}

typedef struct change {
    const char *from, *to;
    fl_status status;
    const char *says;
} change;

static void test_profile_file__tells_what_is_wrong(void **state)
{
    (void)state;
    static rig r;
    static char text[TEXT_MAX];
    static const change cases[] = {
        {"# A profile", "# No profile", FL_EFORMAT, "this is no profile"},
        {"format: 8", "format: 2", FL_EINVAL, "format 2; this program reads 3 to 8"},
        {"format: 8", "format: one", FL_EFORMAT, "format: found 'one', allowed: a whole number"},
        {"precision: \"fp32, cached as fp32\"", "precision: \"bf16\"", FL_EINVAL,
         "of another precision: 'bf16', not 'fp32, cached as fp32'"},
        {"2 at once", "4 at once", FL_EINVAL, "of another device"},
        {"loss_us: 1e-7", "loss_us: -1", FL_EFORMAT,
         "loss_us: found '-1', allowed: 0, or a number from 1e-12 to 1e+12"},
        /* finite, and yet no measurement: plans would have no use for any other device */
        {"loss_us: 1e-7", "loss_us: 1e30", FL_EFORMAT, "loss_us: found '1e30', allowed: 0, or"},
        {"loss_us: 1e-7", "loss_us: 1e-30", FL_EFORMAT, "loss_us: found '1e-30'"},
        {"link_us: 45.9", "link_us: 4.9e-324", FL_EFORMAT, "link_us: found '4.9e-324'"},
        {"link_bytes_per_us: 100000", "link_bytes_per_us: 1e-300", FL_EFORMAT,
         "link_bytes_per_us: found '1e-300', allowed: a number from 1e-06 to 1000000000"},
        {"link_bytes_per_us: 100000", "link_bytes_per_us: 1e300", FL_EFORMAT, "found '1e300'"},
        {"kept_bytes: 1099511627776", "kept_bytes: 9223372036854775807", FL_EFORMAT,
         "kept_bytes: found '9223372036854775807', allowed: a whole number from 0 to "},
        {"loss_us: 1e-7", "loss_us: nan", FL_EFORMAT, "loss_us: found 'nan'"},
        {"loss_us: 1e-7", "loss_us: 1e999", FL_EFORMAT, "loss_us: found '1e999'"},
        {"loss_us: 1e-7", "loss_us: [1]", FL_EFORMAT, "loss_us: found a list"},
        {"loss_us: 1e-7", "lose_us: 1e-7", FL_EFORMAT, "loss_us is missing"},
        {"link_bytes_per_us: 100000", "link_bytes_per_us: 0", FL_EFORMAT,
         "link_bytes_per_us: found '0', allowed: a number from 1e-06"},
        {"kind: mlp", "kind: rnn", FL_EINVAL, "layer 2 is rnn of"},
        {"m: 6", "m: 0", FL_EFORMAT, "m: found '0'"},
        {"m: 6", "m: 99999999999", FL_EFORMAT, "m: found '99999999999'"},
        {"layers:", "layers: 7\nlayer:", FL_EFORMAT, "layers: found '7', allowed: a list"},
        {"costs:", "costs: &a", FL_EFORMAT, "yaml"},
    };
    rig_init(&r);
    write_file(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(r.text, cases[i].from);
        if (at == NULL) {
            fail_msg("nothing like %s in\n%s", cases[i].from, r.text);
        }
        int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - r.text), r.text, cases[i].to,
                         at + strlen(cases[i].from));
        assert_int_equal(parse(&r, text, (size_t)n), cases[i].status);
        if (strstr(fl_errmsg(), cases[i].says) == NULL) {
            assert_string_equal(fl_errmsg(), cases[i].says);
        }
    }
    rig_fini(&r);
}

/* Planning from a file of another machine, as frostline plan --profile does. */
static void test_profile_file__of_another_device_is_read_when_asked_for(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    write_file(&r);
    snprintf(r.key.text[2], sizeof r.key.text[2], "abacus");
    assert_int_equal(parse(&r, r.text, r.n), FL_EINVAL);
    assert_int_equal(fl_profile_parse("p.yaml", r.text, r.n, NULL, r.model, &r.back, &r.about_back),
                     FL_OK);
    rig_fini(&r);
}

/* A mistyped pipe.profile must not cost somebody a file. */
static void test_profile_file__leaves_other_files_alone(void **state)
{
    (void)state;
    static rig r;
    char text[16] = "";
    rig_init(&r);
    write_file(&r);
    FILE *file = fopen(r.path, "we");
    assert_non_null(file);
    fputs("my thesis", file);
    fclose(file);
    assert_int_equal(fl_profile_write(r.path, &r.key, r.model, &r.profile, &r.about), FL_EINVAL);
    file = fopen(r.path, "re");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), strlen("my thesis"));
    fclose(file);
    assert_string_equal(text, "my thesis");
    rig_fini(&r);
}

/* Whatever costs depend on changes the key. */
static void test_profile_key__differs_with_what_it_is_of(void **state)
{
    (void)state;
    static fl_layer_memory memory[FL_MAX_LAYERS];
    fl_shape image = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};
    fl_model *models[2] = {NULL, NULL};
    fl_profile_key keys[12];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fl_toy_model(BLOCKS + i, 0.1f, &models[i]), FL_OK);
    }
    assert_int_equal(fl_memory_measure(models[1], &(fl_sample_shape){image, 1, FL_I32}, 1, memory),
                     FL_OK);
    fl_job job = {.devices = {.cores = 1}}, other = job;
    fl_profile_key_of(models[1], &job, memory, NULL, &processors, &no_nccl, 2, &keys[0]);
    fl_profile_key_of(models[0], &job, memory, NULL, &processors, &no_nccl, 2, &keys[1]);
    fl_profile_key_of(models[1], &job, memory, NULL, &processors, &no_nccl, 3, &keys[2]);
    other.devices.cores = 2;
    fl_profile_key_of(models[1], &other, memory, NULL, &processors, &no_nccl, 2, &keys[3]);
    other = job;
    other.train.optimizer = FL_SGD;
    fl_profile_key_of(models[1], &other, memory, NULL, &processors, &no_nccl, 2, &keys[4]);
    other = job;
    other.cache.dtype = FL_CACHE_BF16;
    fl_profile_key_of(models[1], &other, memory, NULL, &processors, &no_nccl, 2, &keys[5]);
    other = job;
    other.devices.kind = FL_DEVICE_ASYNC_TEST;
    fl_profile_key_of(models[1], &other, memory, NULL, &processors, &no_nccl, 2, &keys[6]);
    fl_device_survey gpus = {
        .kind = FL_DEVICE_CUDA, .n = 2, .device = {{.name = "one"}, {.name = "one"}}};
    other.devices.kind = FL_DEVICE_CUDA;
    fl_profile_key_of(models[1], &other, memory, NULL, &gpus, &no_nccl, 2, &keys[8]);
    gpus.device[1].name[0] = 'O';
    fl_profile_key_of(models[1], &other, memory, NULL, &gpus, &no_nccl, 2, &keys[9]);
    assert_string_equal(keys[8].text[2], "cuda, 2 x one, 1 cores each, 2 at once");
    assert_string_equal(keys[9].text[2], "cuda, 1 x one, 1 x One, 1 cores each, 2 at once");
    fl_nccl_trial nccl = {.version = 22809};
    fl_profile_key_of(models[1], &other, memory, NULL, &gpus, &nccl, 2, &keys[10]);
    nccl.version = 22707;
    fl_profile_key_of(models[1], &other, memory, NULL, &gpus, &nccl, 2, &keys[11]);
    assert_non_null(strstr(keys[9].text[4], " through host memory"));
    assert_non_null(strstr(keys[10].text[4], " over NCCL 2.28.9"));
    memory[1].kept_bytes += 64;
    fl_profile_key_of(models[1], &job, memory, NULL, &processors, &no_nccl, 2, &keys[7]);
    for (int i = 0; i < 12; i++) {
        for (int j = 0; j < i; j++) {
            assert_true(keys[i].hash != keys[j].hash);
        }
    }
    fl_model_destroy(&models[0]);
    fl_model_destroy(&models[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_file__reads_back_what_was_written),
        cmocka_unit_test(test_profile_file__keeps_the_program_that_measured),
        cmocka_unit_test(test_profile_file__reads_the_format_before),
        cmocka_unit_test(test_profile_file__refuses_every_part_of_one),
        cmocka_unit_test(test_profile_file__tells_what_is_wrong),
        cmocka_unit_test(test_profile_file__of_another_device_is_read_when_asked_for),
        cmocka_unit_test(test_profile_file__leaves_other_files_alone),
        cmocka_unit_test(test_profile_key__differs_with_what_it_is_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
