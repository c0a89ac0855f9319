/* From a job with model.kind gpt2 and data.kind text to its model, its data set and config.json. */
#include "data/text/text_dataset.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/model/instantiate.h"
#include "launcher/run/model/model_config.h"
#include "nn/model.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GPT2 FL_SOURCE_DIR "/tests/reference/tokenizer/gpt2"

static const char verse[] = "First Citizen:\nBefore we proceed any further, hear me speak.\n";

static char folder[FOLDER_SIZE];

static int make(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The job, with this section `data`, in which %s is the folder. */
static fl_status instantiate(const char *data, fl_job *job, fl_model **model, fl_dataset *dataset)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "name: text\nmodel: {kind: gpt2, blocks: 2, dim: 24, "
                     "heads: 3, dropout: 0.1}\ndata: ");
    snprintf(text + n, sizeof text - (size_t)n, data, folder);
    if (fl_job_parse("job.yaml", text, strlen(text), NULL, 0, job) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return fl_instantiate(job, model, dataset);
}

static void test_gpt2_job__makes_model_and_data(void **state)
{
    (void)state;
    static fl_job job;
    static fl_model_config config;
    char *text = NULL, path[128];
    fl_model *model = NULL;
    fl_dataset dataset = {0};
    fl_shape shape = {0};
    int64_t n_targets = 0;
    write_file("train.txt", verse);
    assert_int_equal(instantiate("{kind: text, path: %s/train.txt, max_tokens: 16, tokenizer: " GPT2
                                 "}\n",
                                 &job, &model, &dataset),
                     FL_OK);
    assert_int_equal(dataset.ops->max_shape(dataset.self, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, 16);
    assert_int_equal(fl_model_check(model, &shape), FL_OK);
    shape.tokens = 17; /* max_tokens are the positions */
    assert_int_equal(fl_model_check(model, &shape), FL_EINVAL);
    assert_int_equal(fl_model_n_blocks(model), 2);

    assert_int_equal(fl_model_config_text(model, &dataset, &job, &text), FL_OK);
    write_file("config.json", text);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(fl_model_config_read(path, &config), FL_OK);
    const fl_gpt2_config *gpt2 = &config.hf.gpt2;
    assert_int_equal(config.kind, FL_MODEL_HF); /* a folder that transformers loads */
    assert_int_equal(gpt2->vocabulary, shape.n_ids);
    assert_int_equal(gpt2->positions, 16);
    assert_int_equal(gpt2->hidden, 96);
    assert_true(gpt2->attention_dropout == 0.1f && gpt2->embedding_dropout == 0.1f);
    fl_model_config_fini(&config);
    fl_free(text);
    fl_model_destroy(&model);
    fl_dataset_destroy(&dataset);
}

static void test_gpt2_job__names_the_field_at_fault(void **state)
{
    (void)state;
    static const struct {
        const char *data, *text;
    } cases[] = {
        {"{kind: text, path: %s/train.txt}\n",
         "data.tokenizer: found auto, allowed: a folder, since the model comes without one"},
        {"{kind: text, path: %s/none.txt, tokenizer: " GPT2 "}\n", "none.txt"},
        {"{kind: text, path: {train: %s/train.txt, test: /none}, tokenizer: " GPT2 "}\n", "/none"},
        {"{kind: text, path: %s/empty.txt, tokenizer: " GPT2 "}\n",
         "empty.txt: a text of 0 tokens found, at least 2 tokens allowed"},
        {"{kind: text, path: %s/train.txt, tokenizer: /none}\n", "data.tokenizer: /none: "},
    };
    static fl_job job;
    write_file("train.txt", verse);
    write_file("empty.txt", "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_model *model = NULL;
        fl_dataset dataset = {0};
        fl_status status = instantiate(cases[i].data, &job, &model, &dataset);
        assert_true(status == FL_EINVAL || status == FL_EIO || status == FL_EFORMAT);
        if (strstr(fl_errmsg(), cases[i].text) == NULL || strncmp(fl_errmsg(), "data.", 5) != 0) {
            fail_msg("'%s', expected 'data. ... %s'", fl_errmsg(), cases[i].text);
        }
        assert_null(model);
        assert_null(dataset.ops);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_job__makes_model_and_data),
        cmocka_unit_test(test_gpt2_job__names_the_field_at_fault),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
