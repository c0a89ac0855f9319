/* GPT-2 and ViT as Hugging Face folders: in, trained and out again, against what transformers
 * computed. Would catch: a Conv1D that is not turned, or turned on one way only; rows of padding in
 * the file, or a tied head in it; a patch in another order; a name that old files do not have;
 * pixels that the folder's file does not describe; dropout that the job cannot change.
 * The folders come from tests/reference/make_hf_models_reference.py. */
#include "support/folder.h"
#include "support/program.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference"
#define GPT2 REFERENCE "/hf_gpt2"
#define VIT REFERENCE "/hf_vit"

/* One step of SGD on all samples at once, as the script makes it. */
#define STEP                                                                                       \
    "train: {epochs: 1, lr: 0.5, optimizer: sgd, momentum: 0, weight_decay: 0, clip: none, "       \
    "warmup: 0, decay: constant, batch: "

enum { N_IMAGES = 10, CLASSES = 3 };

static const double TOLERANCE = 1e-5;
static char root[FOLDER_SIZE];

static void write_job(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "name: tiny\n%sdevices: {count: 2, cores: 1, memory: 64MiB}\n", text);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    write_job("gpt2.yaml", "model: {kind: hf, path: " GPT2 "/model, dropout: 0}\n"
                           "data: {kind: text, path: {train: " GPT2 "/text.txt, test: " GPT2
                           "/text.txt}, max_tokens: 16}\n" STEP "7}\n");
    write_job("vit.yaml", "model: {kind: hf, path: " VIT "/model, dropout: 0}\n"
                          "data: {kind: idx, path: " VIT "}\n" STEP "10}\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

static double stored_loss(const char *path)
{
    double loss = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lf", &loss), 1);
    fclose(file);
    return loss;
}

/* A member of the JSON object that the program printed, or of its "metrics". */
static double printed(const char *key)
{
    json_t *object = json_loads(program_result.out, 0, NULL);
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        value = json_object_get(json_object_get(object, "metrics"), key);
    }
    assert_true(json_is_number(value));
    double number = json_number_value(value);
    json_decref(object);
    return number;
}

/* ---- GPT-2 ---- */

static void test_hf_models__gpt2_computes_the_loss_of_transformers(void **state)
{
    (void)state;
    const double wanted = stored_loss(GPT2 "/loss.txt");
    program_run(root, 0, "evaluate " GPT2 "/model gpt2.yaml --json");
    assert_true(fabs(printed("loss") - wanted) <= 1e-6 * wanted);
    assert_true(fabs(printed("perplexity") - exp(wanted)) <= 1e-5 * exp(wanted));
}

/* Every tensor shows its gradient. The file that older versions left has the same weights. */
static void test_hf_models__gpt2_takes_the_step_of_transformers(void **state)
{
    (void)state;
    program_run(root, 0, "run gpt2.yaml --run-dir gpt2 --set pipe.k=2");
    program_same_step(root, GPT2 "/model", "gpt2/model", GPT2 "/stepped.safetensors", TOLERANCE);
    program_run(root, 0,
                "run gpt2.yaml --run-dir old --set devices.count=1 --set model.path=" GPT2 "/old");
    program_same_step(root, GPT2 "/model", "old/model", GPT2 "/stepped.safetensors", TOLERANCE);
}

/* The model of another run would be replaced. */
static void test_hf_models__a_run_writes_into_no_linked_folder(void **state)
{
    (void)state;
    program_shell(root, "mkdir mine linked && ln -s ../mine linked/model");
    program_run(root, 2, "run gpt2.yaml --run-dir linked");
    assert_non_null(strstr(program_result.err,
                           "cannot use model: it must be a folder of this run, and no link: "));
    program_shell(root, "test -z \"$(ls mine)\"");
}

/* A checkpoint has Frostline's own names and shapes; exported it is the model that the run left. */
static void test_hf_models__gpt2_goes_out_as_it_came_in(void **state)
{
    (void)state;
    program_run(root, 0, "export " GPT2 "/model --to copy");
    program_same_tensors(root, GPT2 "/model", "copy");
    program_run(root, 0, "export gpt2/checkpoints/step-000000001 --to exported");
    program_same_tensors(root, "gpt2/model", "exported");
    program_shell(root, "cmp " GPT2 "/model/merges.txt exported/merges.txt && "
                        "cmp " GPT2 "/model/vocab.json gpt2/model/vocab.json && "
                        "grep -q GPT2LMHeadModel gpt2/model/config.json && "
                        "grep -q '\"resid_pdrop\": 0.0' gpt2/model/config.json && "
                        "! grep -q id2label gpt2/model/config.json");
}

/* The folder alone has all that it needs; the run has its job. */
static void test_hf_models__gpt2_is_used_by_its_folder(void **state)
{
    (void)state;
    program_run(root, 0, "evaluate gpt2 --json");
    const double run = printed("loss");
    assert_true(run < stored_loss(GPT2 "/loss.txt"));
    program_run(root, 0, "evaluate exported gpt2.yaml --json");
    assert_true(printed("loss") == run);
    write_job("accumulated.yaml",
              "model: {kind: hf, path: " GPT2 "/model, dropout: 0}\n"
              "data: {kind: text, path: {train: " GPT2 "/text.txt, test: " GPT2
              "/text.txt}, max_tokens: 16}\ntrain: {batch: 2, accumulate: 3}\n");
    program_run(root, 0, "evaluate exported accumulated.yaml --set pipe.m=1 --json");
    assert_true(fabs(printed("loss") - run) <= 1e-12 * run);
    program_run(root, 0, "evaluate exported --data " GPT2 "/text.txt --json");
    assert_true(printed("samples") == 4); /* blocks of as many tokens as it has positions */
}

/* Each line of the text alone, as transformers measures it, and the same bytes under every plan. */
static void test_hf_models__gpt2_tells_the_perplexity_of_each_line(void **state)
{
    (void)state;
    FILE *theirs = fopen(GPT2 "/lines.txt", "r");
    assert_non_null(theirs);
    program_run(root, 0,
                "predict " GPT2 "/model gpt2.yaml --set data.path=" GPT2
                "/text.txt --out lines.jsonl");
    program_run(root, 0, "predict " GPT2 "/model --data " GPT2 "/text.txt");
    char *line = strtok(program_result.out, "\n");
    int64_t tokens = 0;
    double loss = 0;
    int n_lines = 0;
    for (; fscanf(theirs, "%" SCNd64 " %lf", &tokens, &loss) == 2; n_lines++) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *perplexity = json_object_get(object, "perplexity");
        assert_int_equal(json_integer_value(json_object_get(object, "line")), n_lines + 1);
        assert_int_equal(json_integer_value(json_object_get(object, "tokens")), tokens);
        assert_true(isnan(loss)
                        ? json_is_null(perplexity)
                        : fabs(json_number_value(perplexity) - exp(loss)) <= TOLERANCE * exp(loss));
        json_decref(object);
        line = strtok(NULL, "\n");
    }
    assert_null(line);
    assert_true(n_lines > 5);
    fclose(theirs);
    program_shell(root, "test $(grep -c '\"part\"' lines.jsonl) -gt 0");
    program_run(root, 0,
                "predict " GPT2 "/model gpt2.yaml --set devices.count=1 --set "
                "train.batch=2 --set data.path=" GPT2 "/text.txt --out alone.jsonl");
    program_shell(root, "cmp lines.jsonl alone.jsonl");
}

/* A model of the shape of the folder's, of drawn weights: its folder is of kind hf, with the names
 * and the tokenizer of such a folder. */
static void test_hf_models__a_drawn_gpt2_leaves_a_folder(void **state)
{
    (void)state;
    write_job("drawn.yaml", "model: {kind: gpt2, blocks: 2, dim: 12, heads: 3, dropout: 0.1}\n"
                            "data: {kind: text, path: {train: " GPT2 "/text.txt, test: " GPT2
                            "/text.txt}, tokenizer: " GPT2 "/model, max_tokens: 32}\n" STEP "4}\n");
    program_run(root, 0, "run drawn.yaml --run-dir drawn");
    program_run(root, 0, "evaluate drawn --json");
    const double loss = printed("loss");
    program_shell(root, "cp -r drawn/model moved && cmp " GPT2 "/model/merges.txt "
                        "moved/merges.txt && grep -q '\"embd_pdrop\": 0.1,' moved/config.json && "
                        "grep -q '\"eos_token_id\": 0,' moved/config.json");
    program_run(root, 0, "evaluate moved --data " GPT2 "/text.txt --json");
    assert_true(printed("loss") == loss);
    program_run(root, 0, "export drawn/checkpoints/step-000000001 --to drawn-out");
    program_same_tensors(root, "moved", "drawn-out");
    program_shell(root, "cmp " GPT2 "/model/vocab.json drawn-out/vocab.json");
    program_run(root, 0, "validate gpt2.yaml --set model.init=moved");
    program_run(root, 0, "validate gpt2.yaml --set model.path=moved --set model.dropout=auto");
}

/* ---- ViT ---- */

static void test_hf_models__vit_predicts_what_transformers_does(void **state)
{
    (void)state;
    char path[256];
    program_run(root, 0, "predict " VIT "/model vit.yaml --out vit.jsonl");
    snprintf(path, sizeof path, "%s/vit.jsonl", root);
    FILE *ours = fopen(path, "r"), *theirs = fopen(VIT "/logits.txt", "r");
    assert_non_null(ours);
    assert_non_null(theirs);
    for (int i = 0; i < N_IMAGES; i++) {
        char line[1024];
        double logit[CLASSES], sum = 0;
        assert_non_null(fgets(line, sizeof line, ours));
        json_t *object = json_loads(line, 0, NULL);
        const json_t *scores = json_object_get(object, "scores");
        for (int c = 0; c < CLASSES; c++) {
            assert_int_equal(fscanf(theirs, "%lf", &logit[c]), 1);
            sum += exp(logit[c]);
        }
        for (int c = 0; c < CLASSES; c++) {
            double score = json_number_value(json_array_get(scores, (size_t)c));
            assert_true(fabs(score - exp(logit[c]) / sum) < 1e-6);
        }
        json_decref(object);
    }
    fclose(ours);
    fclose(theirs);
}

static void test_hf_models__vit_takes_the_step_of_transformers(void **state)
{
    (void)state;
    program_run(root, 0, "run vit.yaml --run-dir vit --set pipe.k=2");
    program_same_step(root, VIT "/model", "vit/model", VIT "/stepped.safetensors", TOLERANCE);
    program_shell(root, "cmp " VIT "/model/preprocessor_config.json "
                        "vit/model/preprocessor_config.json && "
                        "grep -q '\"2\": \"shirt\"' vit/model/config.json");
}

static void test_hf_models__vit_goes_out_as_it_came_in(void **state)
{
    (void)state;
    program_run(root, 0, "export " VIT "/model --to vit_copy");
    program_same_tensors(root, VIT "/model", "vit_copy");
    program_run(root, 0, "export vit/checkpoints/step-000000001 --to vit_exported");
    program_same_tensors(root, "vit/model", "vit_exported");
    program_shell(root, "test -e vit_exported/preprocessor_config.json");
}

/* Other classes than the folder's: the linear map is new, the norm before it is the folder's. */
static void test_hf_models__vit_gets_a_classifier_for_other_classes(void **state)
{
    (void)state;
    program_run(root, 0, "validate vit.yaml");
    assert_null(strstr(program_result.err, "drawn"));
    program_run(root, 0, "validate vit.yaml --set 'data.classes=[0, 2]' --set train.batch=2");
    assert_non_null(strstr(program_result.err, "hf_vit/model has no weights for head.fc.weight, "
                                               "head.fc.bias: drawn with train.seed"));
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *job, *folder;
    const char *change; /* of a copy of the folder, by the shell */
    const char *options;
    const char *says;
} refusal;

static void test_hf_models__refuses_with_the_place(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"gpt2", GPT2, "true", "--set data.max_tokens=64",
         "data.max_tokens: found 64, allowed: at most 32, the positions of the model"},
        {"gpt2", GPT2, "true", "--set data.kind=table",
         "data.kind: found table, with model.kind hf and the model of this folder allowed: text"},
        {"gpt2", GPT2, "sed -i 's/embeddings\": true/embeddings\": false/' broken/config.json", "",
         "tie_word_embeddings: found 'false', allowed: true"},
        {"gpt2", GPT2, "sed -i 's/n_head\": 3/n_head\": 5/' broken/config.json", "",
         "n_head: found '5', allowed: a divisor of n_embd, 12"},
        {"gpt2", GPT2, "sed -i 's/vocab_size\": 520/vocab_size\": 519/' broken/config.json",
         "--set model.init=none",
         "found a tokenizer of 520 ids, allowed: at most 519, vocab_size of the model"},
        {"gpt2", GPT2, "sed -i 's/vocab_size\": 520/vocab_size\": 576/' broken/config.json", "",
         "transformer.wte.weight [520, 12], the model has [576, 12]"},
        {"gpt2", GPT2, "sed -i 's/n_inner\": null/n_inner\": 40/' broken/config.json", "",
         "transformer.h.0.mlp.c_fc.weight [12, 48], the model has [12, 40]"},
        {"vit", VIT, "sed -i 's/qkv_bias\": true/qkv_bias\": false/' broken/config.json", "",
         "qkv_bias: found 'false', allowed: true"},
        {"vit", VIT, "sed -i 's/patch_size\": 4/patch_size\": 6/' broken/config.json", "",
         "projection.weight [18, 1, 4, 4], the model has [18, 1, 6, 6]"},
        {"vit", VIT, "sed -i 's/patch_size\": 4/patch_size\": 5/' broken/config.json", "",
         "patch_size: found '5', allowed: a divisor of image_size, 12"},
        {"vit", VIT, "sed -i 's/num_channels\": 1/num_channels\": 2/' broken/config.json", "",
         "image_mean: found '[0.40000000000000002]', allowed: 2 numbers, one for each channel"},
        {"vit", VIT, "sed -i 's/0.25/0/' broken/preprocessor_config.json", "",
         "image_std: found '[0]', allowed: numbers above 0"},
        {"vit", VIT, "sed -i 's/resample\": 2/resample\": 3/' broken/preprocessor_config.json", "",
         "resample: found '3', allowed: 2, bilinear"},
        {"vit", VIT, "sed -i 's/height\": 12/height\": 24/' broken/preprocessor_config.json", "",
         "allowed: image_size of config.json, 12"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command, "rm -rf broken && cp -r %s/model broken && %s",
                 cases[i].folder, cases[i].change);
        program_shell(root, command);
        program_run(root, 2, "validate %s.yaml --set model.path=broken %s", cases[i].job,
                    cases[i].options);
        if (strstr(program_result.err, cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", program_result.err, cases[i].says);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_models__gpt2_computes_the_loss_of_transformers),
        cmocka_unit_test(test_hf_models__gpt2_takes_the_step_of_transformers),
        cmocka_unit_test(test_hf_models__a_run_writes_into_no_linked_folder),
        cmocka_unit_test(test_hf_models__gpt2_goes_out_as_it_came_in),
        cmocka_unit_test(test_hf_models__gpt2_is_used_by_its_folder),
        cmocka_unit_test(test_hf_models__gpt2_tells_the_perplexity_of_each_line),
        cmocka_unit_test(test_hf_models__a_drawn_gpt2_leaves_a_folder),
        cmocka_unit_test(test_hf_models__vit_predicts_what_transformers_does),
        cmocka_unit_test(test_hf_models__vit_takes_the_step_of_transformers),
        cmocka_unit_test(test_hf_models__vit_goes_out_as_it_came_in),
        cmocka_unit_test(test_hf_models__vit_gets_a_classifier_for_other_classes),
        cmocka_unit_test(test_hf_models__refuses_with_the_place),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
