/* The table of fields, and what is generated from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/text/utf8.h"
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef fl_status writer(FILE *stream);

static char *written(writer *write)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_int_equal(write(stream), FL_OK);
    fclose(stream);
    return text;
}

static char *content(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s cannot be opened", path);
    }
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(n > 0);
    return text;
}

/* Would catch a field that was added or changed without its reference. To mend it:
 * build/release/frostline schema --yaml >configs/reference.yaml */
static void test_schema__reference_file_is_the_generated_one(void **state)
{
    (void)state;
    char *generated = written(fl_schema_write_yaml);
    char *committed = content(FL_SOURCE_DIR "/configs/reference.yaml");
    assert_string_equal(committed, generated);
    free(committed);
    free(generated);
}

static void test_schema__reference_file_loads_as_the_defaults(void **state)
{
    (void)state;
    fl_job defaults, job;
    fl_job_defaults(&defaults);
    memset(&job, 0xA5, sizeof job);
    if (fl_job_load(FL_SOURCE_DIR "/configs/reference.yaml", NULL, 0, &job) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_memory_equal(&job, &defaults, offsetof(fl_job, origins));
}

/* If it fails: replace the text after the marker by the output of frostline schema --markdown. */
static void test_schema__docs_page_ends_in_the_generated_tables(void **state)
{
    (void)state;
    static const char marker[] = "a test compares it. -->\n\n";
    char *generated = written(fl_schema_write_markdown);
    char *committed = content(FL_SOURCE_DIR "/docs/job.md");
    char *tables = strstr(committed, marker);
    assert_non_null(tables);
    assert_string_equal(tables + strlen(marker), generated);
    free(committed);
    free(generated);
}

/* A value that differs from the default and that the field allows. */
static const char *another(const fl_field *field, char text[FL_FIELD_VALUE_MAX])
{
    switch (field->type) {
    case FL_FIELD_TEXT:
    case FL_FIELD_PATH:
    case FL_FIELD_LINE:
        return "other";
    case FL_FIELD_FILES:
        return "{train: other, test: another}";
    case FL_FIELD_INTEGER:
        snprintf(text, FL_FIELD_VALUE_MAX, "%d", strcmp(field->initial, "3") == 0 ? 4 : 3);
        return text;
    case FL_FIELD_NUMBER:
        return "0.375";
    case FL_FIELD_SIZE:
        return "3MiB";
    case FL_FIELD_DURATION:
        return "7s";
    case FL_FIELD_SPAN:
        return "11";
    case FL_FIELD_PERIOD:
        return "11 steps";
    case FL_FIELD_INTERVAL:
        return "11 epochs";
    case FL_FIELD_BOOLEAN:
        return strcmp(field->initial, "true") == 0 ? "false" : "true";
    case FL_FIELD_CHOICE:
        for (int i = 0; field->choices[i] != NULL; i++) {
            if (strcmp(field->choices[i], field->initial) != 0) {
                return field->choices[i];
            }
        }
        return NULL;
    case FL_FIELD_LIST:
        return strcmp(field->path, "autodp.ports") == 0 ? "[2000, 3000]"
               : field->list->n_keys == 0               ? "[3, 4]"
               : strcmp(field->path, "hosts") == 0
                   ? "[{name: a, address: 10.0.0.1, devices: 2, sockets: 1, "
                     "memory: 3MiB, speed: 0.5, profile: p}, {name: b, address: 10.0.0.2, devices: "
                     "1}]"
                   : "[{step: 3, f: 1, k: 2, r: 3, m: 4}]";
    }
    return NULL;
}

/* Setting a field changes it and no other: would catch two fields on one offset, a wrong type, and
 * choices in another order than their enum's members are read back. */
static void test_schema__each_field_is_reachable_and_changes_only_itself(void **state)
{
    (void)state;
    int n_changed = 0;
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        char buffer[FL_FIELD_VALUE_MAX];
        const char *text = another(field, buffer);
        if (text == NULL) {
            continue; /* a choice of one */
        }
        fl_job job, defaults;
        fl_job_defaults(&job);
        fl_job_defaults(&defaults);
        if (fl_job_set(&job, field->path, text) != FL_OK) {
            fail_msg("%s", fl_errmsg());
        }
        for (int j = 0; j < fl_schema_n_fields(); j++) {
            char now[FL_FIELD_VALUE_MAX], before[FL_FIELD_VALUE_MAX];
            fl_field_format(fl_schema_field(j), &job, now);
            fl_field_format(fl_schema_field(j), &defaults, before);
            if ((strcmp(now, before) == 0) != (i != j)) {
                fail_msg("%s=%s: %s goes from %s to %s", field->path, text,
                         fl_schema_field(j)->path, before, now);
            }
        }
        n_changed++;
    }
    assert_true(n_changed > 30);
}

/* Would catch a member that was added to fl_job and not to the table. Padding never fills a word.
 */
static void test_schema__fields_cover_the_job(void **state)
{
    (void)state;
    union {
        fl_job job;
        uint64_t words[sizeof(fl_job) / sizeof(uint64_t)];
    } all;
    memset(&all, 0xFF, sizeof all);
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        char buffer[FL_FIELD_VALUE_MAX];
        const char *text = another(field, buffer);
        text = text == NULL ? field->initial : text;
        assert_int_equal(fl_field_parse(field, text, strlen(text), false, &all.job), FL_OK);
    }
    for (size_t i = 0; i < offsetof(fl_job, origins) / sizeof(uint64_t); i++) {
        if (all.words[i] == UINT64_MAX) {
            fail_msg("no field has the bytes at %zu of fl_job", i * sizeof(uint64_t));
        }
    }
}

static void test_schema__each_field_has_a_section_a_doc_and_a_default_it_allows(void **state)
{
    (void)state;
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        const char *point = strchr(field->path, '.');
        assert_int_equal(fl_schema_find(field->path), i);
        size_t length = strlen(field->doc);
        assert_true(length > 0 && field->doc[length - 1] == '.');
        if (point != NULL) {
            char section[64];
            snprintf(section, sizeof section, "%.*s", (int)(point - field->path), field->path);
            assert_true(fl_schema_find_section(section) >= 0);
            assert_true(fl_field_is_in(field, section));
            assert_string_equal(fl_field_name(field), point + 1);
        }
        fl_job job;
        fl_job_defaults(&job);
        assert_int_equal(fl_field_check(field, &job), FL_OK);
    }
}

/* The enums' numbers are in files and on wires: the words must stand for the right ones. */
static void test_schema__choices_stand_for_their_enums(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "model.kind", "plugin"), FL_OK);
    assert_int_equal(job.model.kind, FL_MODEL_PLUGIN);
    assert_int_equal(fl_job_set(&job, "data.augment", "none"), FL_OK);
    assert_int_equal(job.data.augment, FL_AUGMENT_NONE);
    assert_int_equal(fl_job_set(&job, "data.augment", "crop"), FL_OK);
    assert_int_equal(job.data.augment, FL_AUGMENT_CROP);
    assert_int_equal(fl_job_set(&job, "data.augment", "crop-flip"), FL_OK);
    assert_int_equal(job.data.augment, FL_AUGMENT_CROP_FLIP);
    assert_int_equal(fl_job_set(&job, "train.optimizer", "sgd"), FL_OK);
    assert_int_equal(job.train.optimizer, FL_SGD);
    assert_int_equal(fl_job_set(&job, "train.decay", "constant"), FL_OK);
    assert_int_equal(job.train.decay, FL_DECAY_CONSTANT);
    assert_int_equal(fl_job_set(&job, "train.decay", "cosine"), FL_OK);
    assert_int_equal(job.train.decay, FL_DECAY_COSINE);
    assert_int_equal(fl_job_set(&job, "freeze.policy", "none"), FL_OK);
    assert_int_equal(job.freeze.policy, FL_FREEZE_NONE);
    assert_int_equal(fl_job_set(&job, "freeze.policy", "gradnorm"), FL_OK);
    assert_int_equal(job.freeze.policy, FL_FREEZE_GRADNORM);
    assert_int_equal(fl_job_set(&job, "freeze.policy", "schedule"), FL_OK);
    assert_int_equal(job.freeze.policy, FL_FREEZE_SCHEDULE);
    assert_int_equal(fl_job_set(&job, "freeze.policy", "stability"), FL_OK);
    assert_int_equal(job.freeze.policy, FL_FREEZE_STABILITY);
    assert_int_equal(fl_job_set(&job, "pipe.schedule", "gpipe"), FL_OK);
    assert_int_equal(job.pipe.schedule, FL_GPIPE);
    assert_int_equal(fl_job_set(&job, "pipe.partition", "greedy"), FL_OK);
    assert_int_equal(job.pipe.partition, FL_PARTITION_GREEDY);
}

static void test_schema__a_stream_that_fails_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        skip();
    }
    fl_job job;
    fl_job_defaults(&job);
    assert_int_equal(fl_job_write(&job, full), FL_EIO);
    fclose(full);
}

/* One pair of words and the changes that lead from one to the other. */
static void test_text__edit_distance_counts_changes(void **state)
{
    (void)state;
    assert_int_equal(fl_edit_distance("epochs", "epochs", 3), 0);
    assert_int_equal(fl_edit_distance("epoch", "epochs", 3), 1);
    assert_int_equal(fl_edit_distance("trian", "train", 3), 1);
    assert_int_equal(fl_edit_distance("Train", "train", 3), 0);
    assert_int_equal(fl_edit_distance("kitten", "sitting", 3), 3);
    assert_int_equal(fl_edit_distance("kitten", "sitting", 2), 3);
    assert_int_equal(fl_edit_distance("", "abc", 5), 3);
    assert_int_equal(fl_edit_distance("abc", "", 5), 3);
    assert_int_equal(fl_edit_distance("abc", "xyz", 1), 2);
}

static void test_text__utf8_takes_what_the_standard_allows_and_no_more(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        uint32_t code;
    } cases[] = {
        {"a", 1, 'a'},
        {"\xC2\x80", 2, 0x80},
        {"\xDF\xBF", 2, 0x7FF},
        {"\xE0\xA0\x80", 3, 0x800},
        {"\xEF\xBF\xBD", 3, 0xFFFD},
        {"\xF0\x90\x80\x80", 4, 0x10000},
        {"\xF4\x8F\xBF\xBF", 4, 0x10FFFF},
        {"\x80", 0, 0},             /* a rest alone */
        {"\xC1\xBF", 0, 0},         /* too long for what it is */
        {"\xE0\x9F\xBF", 0, 0},     /* so is this */
        {"\xF0\x8F\xBF\xBF", 0, 0}, /* and this */
        {"\xED\xA0\x80", 0, 0},     /* a surrogate */
        {"\xF4\x90\x80\x80", 0, 0}, /* above the last */
        {"\xE2\x82", 0, 0},         /* cut */
        {"\xE2\x28\xA1", 0, 0},     /* broken in the middle */
        {"\xFF", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t code = 0;
        assert_int_equal(fl_utf8_next(cases[i].bytes, strlen(cases[i].bytes), &code),
                         cases[i].size);
        assert_int_equal(code, cases[i].code);
    }
}

/* A new field of model or data is fixed unless its line says otherwise; one of another section is
 * free. Would catch: a resumed run with another model, seed or batch. */
static void test_schema__knows_what_a_resumed_run_keeps(void **state)
{
    (void)state;
    static const char *const exceptions[] = {
        "name",       "train.batch", "train.accumulate", "train.precision", "train.optimizer",
        "train.seed", "run.dir"};
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        bool fixed =
            strncmp(field->path, "model.", 6) == 0 ||
            (strncmp(field->path, "data.", 5) == 0 && strcmp(field->path, "data.path") != 0);
        for (size_t e = 0; e < sizeof exceptions / sizeof *exceptions; e++) {
            fixed = fixed || strcmp(field->path, exceptions[e]) == 0;
        }
        if (fl_field_may_change(field) == fixed) {
            fail_msg("%s %s change", field->path, fixed ? "must not" : "may");
        }
    }
}

static fl_job *job_with(const char *const *sets)
{
    fl_job *job = malloc(sizeof *job);
    assert_non_null(job);
    fl_job_defaults(job);
    for (; *sets != NULL; sets += 2) {
        assert_int_equal(fl_job_set(job, sets[0], sets[1]), FL_OK);
    }
    return job;
}

static void test_schema__lists_every_fixed_field_that_differs(void **state)
{
    (void)state;
    fl_job *before = job_with((const char *const[]){"model.dim", "64", NULL});
    fl_job *free_ones = job_with((const char *const[]){
        "model.dim", "64", "train.epochs", "30", "train.lr", "5e-4", "data.path", "/elsewhere",
        "pipe.k", "2", "devices.count", "2", "freeze.policy", "gradnorm", NULL});
    fl_job *now = job_with((const char *const[]){
        "model.dim", "32", "train.seed", "3", "data.validation", "5%", "train.epochs", "30", NULL});
    assert_int_equal(fl_job_check_resume(before, free_ones, "RUN/job.yaml"), FL_OK);
    assert_int_equal(fl_job_check_resume(before, now, "RUN/job.yaml"), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(),
                           "--resume: RUN/job.yaml: fields that a run keeps are different:\n"
                           "  model.dim: found 32, the run has 64\n"
                           "  data.validation: found 5%, the run has none\n"
                           "  train.seed: found 3, the run has 0\n"));
    const char *changed[FL_SCHEMA_MAX];
    int n;
    assert_int_equal(fl_job_list_changes(before, now, changed, &n), FL_OK);
    assert_int_equal(n, 4);
    assert_string_equal(changed[0], "model.dim");
    assert_string_equal(changed[2], "train.epochs");
    assert_int_equal(fl_job_list_changes(before, before, changed, &n), FL_OK);
    assert_int_equal(n, 0);
    free(before);
    free(free_ones);
    free(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema__knows_what_a_resumed_run_keeps),
        cmocka_unit_test(test_schema__lists_every_fixed_field_that_differs),
        cmocka_unit_test(test_schema__reference_file_is_the_generated_one),
        cmocka_unit_test(test_schema__reference_file_loads_as_the_defaults),
        cmocka_unit_test(test_schema__docs_page_ends_in_the_generated_tables),
        cmocka_unit_test(test_schema__each_field_is_reachable_and_changes_only_itself),
        cmocka_unit_test(test_schema__fields_cover_the_job),
        cmocka_unit_test(test_schema__each_field_has_a_section_a_doc_and_a_default_it_allows),
        cmocka_unit_test(test_schema__choices_stand_for_their_enums),
        cmocka_unit_test(test_schema__a_stream_that_fails_is_an_error),
        cmocka_unit_test(test_text__edit_distance_counts_changes),
        cmocka_unit_test(test_text__utf8_takes_what_the_standard_allows_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
