/* A Hugging Face folder in, such a folder out. Would catch: weights under a wrong name or in wrong
 * rows; probabilities other than those that transformers computes; a plan, a freeze or a transition
 * on samples of different lengths that changes what is computed; a model folder that lacks the
 * tokenizer or a name of a class; a checkpoint that is no such model; a folder that is not refused.
 * The folders come from tests/reference/make_hf_reference.py. */
#include "support/data/toy.h"
#include "support/folder.h"
#include "support/program.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/hf_bert"

enum { N_TESTS = 24, N_STEPS = 12 };

static char root[FOLDER_SIZE];

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    char path[256];
    snprintf(path, sizeof path, "%s/job.yaml", root);
    FILE *file = fopen(path, "w");
    fputs("name: tiny\n"
          "model: {kind: hf, path: " REFERENCE "/base}\n"
          "data: {kind: table, path: {train: " REFERENCE "/train.tsv, test: " REFERENCE
          "/test.tsv}, text: sentence, label: label, max_tokens: 40}\n"
          "train: {epochs: 2, batch: 16, lr: 1e-3, weight_decay: 0.01}\n"
          "devices: {count: 1, cores: 1, memory: 64MiB}\n",
          file);
    fclose(file);
    program_run(root, 0, "run job.yaml --run-dir run");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* ---- in ---- */

static json_t *line_of(FILE *file)
{
    char line[1024];
    assert_non_null(fgets(line, sizeof line, file));
    json_t *object = json_loads(line, 0, NULL);
    assert_non_null(object);
    return object;
}

/* Our probabilities of each line are the softmax of the stored logits. */
static void test_hf__predicts_what_transformers_does(void **state)
{
    (void)state;
    char path[256];
    program_run(root, 0, "predict " REFERENCE "/tuned job.yaml --out tuned.jsonl");
    snprintf(path, sizeof path, "%s/tuned.jsonl", root);
    FILE *ours = fopen(path, "r"), *theirs = fopen(REFERENCE "/logits.txt", "r");
    assert_non_null(ours);
    assert_non_null(theirs);
    for (int i = 0; i < N_TESTS; i++) {
        double bad, good;
        json_t *object = line_of(ours);
        const json_t *scores = json_object_get(object, "scores");
        assert_int_equal(fscanf(theirs, "%lf %lf", &bad, &good), 2);
        double wanted = 1 / (1 + exp(bad - good));
        double found = json_number_value(json_array_get(scores, 1));
        assert_true(fabs(found - wanted) < 1e-6 * wanted);
        json_decref(object);
    }
    fclose(ours);
    fclose(theirs);
}

/* The classifier is new, and the message names it. */
static void test_hf__names_what_the_folder_lacks(void **state)
{
    (void)state;
    program_run(root, 0, "validate job.yaml");
    assert_non_null(strstr(program_result.err, "hf_bert/base has no weights for head.fc.weight, "
                                               "head.fc.bias: drawn with train.seed"));
    program_run(root, 0, "validate job.yaml --set model.path=" REFERENCE "/tuned");
    assert_null(strstr(program_result.err, "drawn"));
}

/* ---- plans ---- */

static void compare_losses(const char *run, double tolerance)
{
    char dir[2][256];
    double losses[2][N_STEPS + 1];
    snprintf(dir[0], sizeof dir[0], "%s/run", root);
    snprintf(dir[1], sizeof dir[1], "%s/%s", root, run);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fl_toy_losses(dir[i], losses[i], N_STEPS + 1), N_STEPS);
    }
    for (int i = 0; i < N_STEPS; i++) {
        if (!(fabs(losses[0][i] - losses[1][i]) <= tolerance * losses[0][i])) {
            fail_msg("%s: step %d: loss %.9g, with K = R = 1 %.9g", run, i, losses[1][i],
                     losses[0][i]);
        }
    }
}

/* Dropout is on, samples have 3 to 27 tokens. */
static void test_hf__every_plan_has_the_same_losses(void **state)
{
    (void)state;
    program_run(root, 0,
                "run job.yaml --run-dir k2 --set devices.count=2 --set pipe.k=2 --set pipe.m=3");
    compare_losses("k2", 1e-5);
    program_run(root, 0,
                "run job.yaml --run-dir r2 --set devices.count=2 --set pipe.k=1 --set autodp.r=2");
    compare_losses("r2", 1e-5);
}

/* Blocks freeze, plans change, outputs are cached; and a replay repeats all of it. */
static void test_hf__freezes_and_replays(void **state)
{
    (void)state;
    static const char script[] =
        "--set 'elastic.script=[{step: 3, f: 1, k: 2, r: 1}, {step: 6, f: 2, k: 1, r: 2}, "
        "{step: 9, f: 2, k: 1, r: 1}]'";
    static const char frozen[] =
        "--set 'elastic.script=[{step: 3, f: 1}, {step: 6, f: 2}, {step: 9, f: 2}]'";
    program_run(root, 0, "run job.yaml --run-dir still %s", frozen);
    program_run(root, 0,
                "run job.yaml --run-dir moved --set devices.count=2 %s --set train.hash_weights=1",
                script);
    program_shell(root, "rm -rf run-kept && mv run run-kept && cp -r still run");
    compare_losses("moved", 1e-5);
    program_shell(root, "rm -r run && mv run-kept run");
    program_run(root, 0, "run --replay moved --run-dir again");
    program_run(root, 0, "diff moved again");
}

/* ---- out ---- */

/* In and out again, by an export and by a run that trains nothing of them: every tensor is what it
 * was. */
static void test_hf__a_round_trip_changes_no_tensor(void **state)
{
    (void)state;
    program_run(root, 0, "export " REFERENCE "/tuned --to copy");
    program_same_tensors(root, REFERENCE "/tuned", "copy");
    program_run(root, 0,
                "run job.yaml --run-dir idle --set model.path=" REFERENCE
                "/tuned --set train.lr=1e-30 --set train.weight_decay=0 --set train.max_steps=1 "
                "--set devices.count=2 --set pipe.k=2");
    program_same_tensors(root, REFERENCE "/tuned", "idle/model");
}

static void test_hf__leaves_a_folder_of_the_same_kind(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/run/model/config.json", root);
    json_t *config = json_load_file(path, 0, NULL);
    const json_t *labels = json_object_get(config, "id2label");
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "bert");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
        "BertForSequenceClassification");
    assert_string_equal(json_string_value(json_object_get(labels, "1")), "good");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(config, "label2id"), "bad")), 0);
    assert_true(json_number_value(json_object_get(config, "hidden_dropout_prob")) == 0.1);
    json_decref(config);
    program_shell(root, "cmp " REFERENCE "/base/vocab.txt run/model/vocab.txt && cmp " REFERENCE
                        "/base/tokenizer_config.json run/model/tokenizer_config.json");
}

/* The folder alone, the run and its checkpoint are one model. */
static void test_hf__evaluates_what_it_left(void **state)
{
    (void)state;
    static const char *const models[] = {"run", "run/checkpoints/step-000000012", "exported"};
    char first[64] = "";
    program_run(root, 0, "export run/checkpoints/step-000000012 --to exported");
    program_same_tensors(root, "run/model", "exported");
    for (int i = 0; i < 3; i++) {
        program_run(root, 0, "evaluate %s --json%s", models[i],
                    i < 2 ? "" : " job.yaml --data " REFERENCE "/test.tsv");
        json_t *found = json_loads(program_result.out, 0, NULL);
        char loss[64];
        snprintf(loss, sizeof loss, "%.17g", json_number_value(json_object_get(found, "loss")));
        assert_int_equal(json_integer_value(json_object_get(found, "samples")), N_TESTS);
        if (i == 0) {
            memcpy(first, loss, sizeof loss);
        }
        assert_string_equal(loss, first);
        json_decref(found);
    }
    program_run(root, 0, "export run --to half --dtype bf16");
    program_shell(root, "grep -q bfloat16 half/config.json && test -e half/vocab.txt");
}

/* Labels that the model does not have, as in GLUE's test files, are left out; the classes have
 * their names. */
static void test_hf__predicts_without_labels_of_the_model(void **state)
{
    (void)state;
    program_shell(root, "sed 's/\t[a-z]*$/\t-1/; 1s/-1/label/' " REFERENCE "/test.tsv >glue.tsv");
    program_run(root, 0, "predict run --out known.jsonl");
    program_run(root, 0, "predict run --data glue.tsv --out glue.jsonl");
    program_shell(root, "sed 's/\"label\": [01], \"label_name\": \"[a-z]*\", //' known.jsonl >a && "
                        "cmp a glue.jsonl && ! cmp -s a known.jsonl && "
                        "grep -q '\"prediction\": 0, \"prediction_name\": \"bad\"' a && "
                        "! grep -q '\"label' a");
    program_run(root, 2, "evaluate run --data glue.tsv");
    assert_non_null(strstr(program_result.err,
                           "glue.tsv: line 2: label '-1' found, allowed: a label"
                           " of the model: 'bad', 'good'"));
}

/* The labels keep the folder's order, whatever the order in the table would be. */
static void test_hf__keeps_the_order_of_the_folders_classes(void **state)
{
    (void)state;
    program_shell(root, "cp -r " REFERENCE "/tuned swapped && sed -i "
                        "'s/\"0\": \"bad\"/\"0\": \"good\"/; s/\"1\": \"good\"/\"1\": \"bad\"/' "
                        "swapped/config.json && grep -q '\"0\": \"good\"' swapped/config.json");
    program_run(root, 0,
                "run job.yaml --run-dir ordered --set model.path=swapped --set train.max_steps=1");
    program_shell(root, "grep -q '\"0\": \"good\"' ordered/model/config.json");
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *change; /* of a copy of tuned/, by the shell */
    const char *options;
    const char *says;
} refusal;

static void test_hf__refuses_with_the_place(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"true", "--set data.kind=idx --set data.path=x",
         "data.kind: found idx, with model.kind hf and the model of this folder allowed: table"},
        {"true", "--set model.path=none",
         "model.path: found none, with model.kind hf allowed: a Hugging Face folder"},
        {"true", "--set model.kind=vit", "model.path: found a path, allowed: only with model.kind"},
        {"true", "--set model.dim=2 --set model.heads=1",
         "model.dim: found 2, with model.kind hf allowed: the default, 128; "},
        {"rm broken/config.json", "", "broken/config.json: No such file"},
        {"sed -i s/gelu/relu/ broken/config.json", "",
         "hidden_act: found '\"relu\"', allowed: gelu, gelu_new"},
        {"sed -i 's/\"bert\"/\"gpt_neox\"/' broken/config.json", "",
         "model_type: found gpt_neox, allowed: bert"},
        {"sed -i 's/vocab_size\": 31/vocab_size\": 30/' broken/config.json", "",
         "model.path: found a tokenizer of 31 ids, allowed: at most 30, vocab_size of the model"},
        {"true", "--set data.tokenizer=" FL_SOURCE_DIR "/tests/reference/tokenizer/bert",
         "data.tokenizer: found a tokenizer of 420 ids, allowed: at most 31, vocab_size of the"},
        {"true", "--set data.max_tokens=41",
         "data.max_tokens: found 41, allowed: at most 40, the positions of the model"},
        {"sed -i 's/ \"vocab_size\": 31/\"vocab_size\": 159/' broken/config.json", "",
         "broken has 31 ids, vocab_size of the model is 159"},
        {"sed -i 's/num_hidden_layers\": 3/num_hidden_layers\": 4/' broken/config.json", "",
         "missing:\n    bert.encoder.layer.3.attention.output.LayerNorm.weight"},
        {"sed -i 's/num_hidden_layers\": 3/num_hidden_layers\": 2/' broken/config.json", "",
         "extra:\n    bert.encoder.layer.2."},
        {"head -c 3000 " REFERENCE "/tuned/model.safetensors >broken/model.safetensors", "",
         "model.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command, "rm -rf broken && cp -r " REFERENCE "/tuned broken && %s",
                 cases[i].change);
        program_shell(root, command);
        program_run(root, 2, "run job.yaml --run-dir refused --set model.path=broken %s",
                    cases[i].options);
        if (strstr(program_result.err, cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", program_result.err, cases[i].says);
        }
        program_shell(root, "! test -e refused");
    }
    /* padded to a multiple of 128, which is usual */
    program_shell(root, "rm -rf broken && cp -r " REFERENCE "/tuned broken && "
                        "sed -i 's/ \"vocab_size\": 31/\"vocab_size\": 128/' broken/config.json");
    program_run(root, 2, "validate job.yaml --set model.path=broken");
    assert_null(strstr(program_result.err, "vocab_size of the model is"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf__predicts_what_transformers_does),
        cmocka_unit_test(test_hf__names_what_the_folder_lacks),
        cmocka_unit_test(test_hf__every_plan_has_the_same_losses),
        cmocka_unit_test(test_hf__freezes_and_replays),
        cmocka_unit_test(test_hf__a_round_trip_changes_no_tensor),
        cmocka_unit_test(test_hf__leaves_a_folder_of_the_same_kind),
        cmocka_unit_test(test_hf__evaluates_what_it_left),
        cmocka_unit_test(test_hf__predicts_without_labels_of_the_model),
        cmocka_unit_test(test_hf__keeps_the_order_of_the_folders_classes),
        cmocka_unit_test(test_hf__refuses_with_the_place),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
