/* config.json of Hugging Face: what is read, what transformers' defaults fill in, and that each
 * impossible or unknown value is refused with its field. */
#include "device/system/alloc.h"
#include "launcher/hf/hf_config.h"
#include "launcher/hf/hf_files.h"
#include "nn/model.h"
#include "support/folder.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_ROOM = 128 };

static char folder[FOLDER_SIZE];

static void save_text(const char *name, const char *text, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fl_status read_text(const char *text, fl_hf_config *out)
{
    char path[PATH_ROOM];
    save_text("config.json", text, path);
    return fl_hf_config_read(folder, out);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void test_hf_config__absent_fields_have_the_librarys_defaults(void **state)
{
    (void)state;
    fl_hf_config c;
    assert_int_equal(read_text("{\"model_type\": \"bert\"}", &c), FL_OK);
    assert_int_equal(c.bert.dim, 768);
    assert_int_equal(c.bert.blocks, 12);
    assert_int_equal(c.bert.vocabulary, 30522);
    assert_int_equal(c.bert.activation, FL_ACT_GELU_ERF);
    assert_true(c.bert.epsilon == 1e-12f);
    assert_true(c.bert.dropout == 0.1f && c.bert.head_dropout == 0.1f);
    assert_true(c.bert.has_padding && c.bert.padding == 0);
    assert_int_equal(c.n_classes, 2);
    assert_int_equal(c.n_labels, 0);
    assert_true(fl_hf_config_has_types(&c));
    fl_hf_config_fini(&c);
}

static void test_hf_config__reads_each_field(void **state)
{
    (void)state;
    fl_hf_config c;
    assert_int_equal(
        read_text("{\"model_type\": \"bert\", \"hidden_size\": 6, \"num_attention_heads\": 3, "
                  "\"num_hidden_layers\": 2, \"intermediate_size\": 5, \"vocab_size\": 11, "
                  "\"max_position_embeddings\": 7, \"type_vocab_size\": 1, \"pad_token_id\": null, "
                  "\"hidden_act\": \"gelu_new\", \"classifier_dropout\": 0.25, "
                  "\"hidden_dropout_prob\": 0.5, \"attention_probs_dropout_prob\": 0, "
                  "\"id2label\": {\"1\": \"b\", \"0\": \"a\", \"2\": \"LABEL_2\"}}",
                  &c),
        FL_OK);
    assert_int_equal(c.bert.hidden, 5);
    assert_int_equal(c.bert.positions, 7);
    assert_int_equal(c.bert.activation, FL_ACT_GELU_TANH);
    assert_true(c.bert.head_dropout == 0.25f && c.bert.dropout == 0.5f);
    assert_true(c.bert.attention_dropout == 0.0f);
    assert_false(c.bert.has_padding);
    assert_false(fl_hf_config_has_types(&c));
    assert_int_equal(c.n_labels, 3);
    assert_string_equal(c.labels[1], "b");
    fl_hf_config_fini(&c);
}

/* LABEL_0 and LABEL_1 are what the library writes where nobody named the classes. */
static void test_hf_config__default_labels_are_no_names(void **state)
{
    (void)state;
    fl_hf_config c;
    assert_int_equal(read_text("{\"model_type\": \"bert\", \"id2label\": {\"0\": \"LABEL_0\", "
                               "\"1\": \"LABEL_1\", \"2\": \"LABEL_2\"}}",
                               &c),
                     FL_OK);
    assert_int_equal(c.n_labels, 0);
    assert_int_equal(c.n_classes, 3);
    fl_hf_config_fini(&c);
}

/* What is written again keeps what it does not know. */
static void test_hf_config__writes_what_it_read(void **state)
{
    (void)state;
    static const char *const labels[] = {"no", "yes"};
    fl_hf_config c;
    char *text = NULL;
    assert_int_equal(read_text("{\"model_type\": \"bert\", \"layer_norm_eps\": 1e-12, \"mine\": "
                               "[1, null], \"architectures\": [\"BertModel\"], \"dtype\": "
                               "\"float16\", \"num_labels\": 5}",
                               &c),
                     FL_OK);
    assert_int_equal(fl_hf_config_text(&c, labels, 2, "float32", &text), FL_OK);
    assert_non_null(strstr(text, "\"layer_norm_eps\": 1e-12"));
    assert_non_null(strstr(text, "BertForSequenceClassification"));
    assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
    assert_non_null(strstr(text, "\"mine\""));
    assert_non_null(strstr(text, "\"yes\": 1"));
    assert_null(strstr(text, "num_labels"));
    assert_null(strstr(text, "float16"));
    fl_free(text);
    fl_hf_config_fini(&c);
}

/* The share of the job replaces every one of the file, in what is written, too; and what is
 * measured of a model with dropout is not taken for one without. */
static void test_hf_config__dropout_can_be_replaced(void **state)
{
    (void)state;
    static const char *const kinds[] = {"bert", "gpt2", "vit"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fl_hf_config c;
        fl_model *model[2] = {NULL, NULL};
        char text[256], *written = NULL;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"hidden_size\": 12, \"n_embd\": 12, "
                 "\"vocab_size\": 9, \"num_hidden_layers\": 1, \"n_layer\": 1}",
                 kinds[i]);
        assert_int_equal(read_text(text, &c), FL_OK);
        assert_int_equal(fl_hf_model_create(&c, 2, &model[0]), FL_OK);
        assert_int_equal(fl_hf_config_set_dropout(&c, 0.25), FL_OK);
        assert_int_equal(fl_hf_model_create(&c, 2, &model[1]), FL_OK);
        const float shares[][3] = {
            {c.bert.dropout, c.bert.attention_dropout, c.bert.head_dropout},
            {c.gpt2.dropout, c.gpt2.attention_dropout, c.gpt2.embedding_dropout},
            {c.vit.dropout, c.vit.attention_dropout, c.vit.embedding_dropout}};
        for (int k = 0; k < 3; k++) {
            assert_true(shares[i][k] == 0.25f);
        }
        assert_true(fl_model_fingerprint(model[0]) != fl_model_fingerprint(model[1]));
        assert_int_equal(fl_hf_config_text(&c, NULL, 2, "float32", &written), FL_OK);
        assert_non_null(strstr(written, "0.25"));
        fl_free(written);
        fl_model_destroy(&model[0]);
        fl_model_destroy(&model[1]);
        fl_hf_config_fini(&c);
    }
}

static void test_hf_config__reads_gpt2_and_vit(void **state)
{
    (void)state;
    fl_hf_config c;
    assert_int_equal(read_text("{\"model_type\": \"gpt2\"}", &c), FL_OK);
    assert_int_equal(fl_hf_config_task(&c), FL_HF_LANGUAGE);
    assert_int_equal(c.gpt2.vocabulary, 50257);
    assert_int_equal(c.gpt2.hidden, 3072);
    assert_int_equal(c.gpt2.activation, FL_ACT_GELU_TANH);
    assert_true(c.gpt2.epsilon == 1e-5f && c.gpt2.embedding_dropout == 0.1f);
    assert_false(fl_hf_config_has_types(&c));
    fl_hf_config_fini(&c);
    assert_int_equal(read_text("{\"model_type\": \"vit\"}", &c), FL_OK);
    assert_int_equal(fl_hf_config_task(&c), FL_HF_IMAGE_CLASSES);
    assert_int_equal(c.vit.height, 224);
    assert_int_equal(c.vit.channels, 3);
    assert_int_equal(c.vit.activation, FL_ACT_GELU_ERF);
    assert_true(c.vit.epsilon == 1e-12f && c.vit.dropout == 0.0f);
    assert_true(c.pixels.mean[2] == 0.5 && c.pixels.deviation[2] == 0.5);
    fl_hf_config_fini(&c);
}

typedef struct refusal {
    const char *members; /* after model_type bert */
    const char *says;
} refusal;

static void test_hf_config__refuses_with_the_field(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"\"hidden_size\": 0", "hidden_size: found '0', allowed: an integer from 1 to 1048576"},
        {"\"hidden_size\": \"768\"", "hidden_size: found '\"768\"', allowed: an integer"},
        {"\"hidden_size\": 1e400", "config.json:1:"},
        {"\"num_attention_heads\": 7",
         "num_attention_heads: found '7', allowed: a divisor of hidden_size, 768"},
        {"\"num_hidden_layers\": 100000", "num_hidden_layers: found '100000', allowed: an integer"},
        {"\"vocab_size\": -1", "vocab_size: found '-1'"},
        {"\"pad_token_id\": 30522", "pad_token_id: found '30522', allowed: an integer from 0 to"},
        {"\"layer_norm_eps\": 0", "layer_norm_eps: found '0', allowed: a number above 0"},
        {"\"hidden_dropout_prob\": 1", "hidden_dropout_prob: found '1', allowed: a number from 0"},
        {"\"classifier_dropout\": \"no\"", "classifier_dropout: found '\"no\"'"},
        {"\"hidden_act\": \"relu\"", "hidden_act: found '\"relu\"', allowed: gelu, gelu_new, "},
        {"\"hidden_act\": 3", "hidden_act: found '3'"},
        {"\"position_embedding_type\": \"relative_key\"",
         "position_embedding_type: found '\"relative_key\"', allowed: absolute"},
        {"\"is_decoder\": true", "is_decoder: found 'true', allowed: nothing"},
        {"\"pruned_heads\": {\"1\": [0]}", "pruned_heads: found"},
        {"\"quantization_config\": {\"bits\": 4}", "quantization_config: found"},
        {"\"problem_type\": \"regression\"",
         "problem_type: found '\"regression\"', allowed: single_label_classification"},
        {"\"id2label\": {\"0\": \"a\", \"2\": \"b\"}", "id2label: found"},
        {"\"id2label\": {}", "id2label: found"},
        {"\"id2label\": [\"a\"]", "id2label: found"},
        {"\"id2label\": {\"0\": 1}", "id2label: found"},
        {"\"hidden_size\": 8, \"hidden_size\": 8", "duplicate"},
        {"\"x\"", "config.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        fl_hf_config c;
        snprintf(text, sizeof text, "{\"model_type\": \"bert\", %s}", cases[i].members);
        assert_int_equal(read_text(text, &c), FL_EFORMAT);
        if (strstr(fl_errmsg(), cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), cases[i].says);
        }
        assert_null(c.root);
    }
}

static void test_hf_config__refuses_other_models_and_files(void **state)
{
    (void)state;
    fl_hf_config c;
    assert_int_equal(read_text("{\"model_type\": \"t5\"}", &c), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "model_type: found t5, allowed: bert"));
    assert_int_equal(read_text("{}", &c), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "model_type: found nothing, allowed: bert"));
    assert_int_equal(read_text("[]", &c), FL_EFORMAT);
    assert_int_equal(read_text("", &c), FL_EFORMAT);
    assert_int_equal(fl_hf_config_read("/nowhere", &c), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "/nowhere/config.json"));
}

/* Found by a fuzz target: the list was never freed. */
static void test_hf_config__refuses_a_list_as_preprocessor_config(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    fl_hf_config c;
    save_text("preprocessor_config.json", "[{}]", path);
    assert_int_equal(read_text("{\"model_type\": \"vit\"}", &c), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "preprocessor_config.json: found a list, allowed: an "
                                        "object"));
    assert_int_equal(unlink(path), 0);
}

/* A pipe would be opened when another program writes into it: never. */
static void test_hf_config__waits_for_no_pipe(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    fl_hf_config c;
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fl_hf_config_read(folder, &c), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "config.json: not a regular file"));
    assert_int_equal(unlink(path), 0);
}

/* ---- the files of a tokenizer ---- */

static int open_copy(char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%s/copy", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    return fd;
}

/* Files that others may read as they may read the weights; a link there is replaced, and what it
 * names stays as it is. */
static void test_hf_files__are_copied_as_files_of_their_own(void **state)
{
    (void)state;
    char path[PATH_ROOM], copy[PATH_ROOM], other[PATH_ROOM];
    struct stat st;
    int fd = open_copy(copy);
    save_text("vocab.txt", "[UNK]\n", path);
    save_text("other", "mine", other);
    assert_int_equal(symlinkat(other, fd, "vocab.txt"), 0);
    mode_t mask = umask(022);
    assert_int_equal(fl_hf_files_copy(folder, fd), FL_OK);
    umask(mask);
    assert_int_equal(fstatat(fd, "vocab.txt", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(stat(other, &st), 0);
    assert_int_equal(st.st_size, 4);
    fl_hf_files_remove(fd);
    close(fd);
    assert_int_equal(rmdir(copy), 0);
    assert_int_equal(unlink(path), 0);
}

/* One that cannot be copied leaves none of them, and a pipe is not waited for. */
static void test_hf_files__are_copied_all_or_none(void **state)
{
    (void)state;
    char path[PATH_ROOM], copy[PATH_ROOM], fifo[PATH_ROOM];
    int fd = open_copy(copy);
    save_text("tokenizer.json", "{}", path);
    snprintf(fifo, sizeof fifo, "%s/merges.txt", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(fl_hf_files_copy(folder, fd), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "/merges.txt beside the model: not a regular file"));
    assert_false(fl_hf_files_has_any(copy));
    close(fd);
    assert_int_equal(rmdir(copy), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(fifo), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_config__absent_fields_have_the_librarys_defaults),
        cmocka_unit_test(test_hf_config__reads_each_field),
        cmocka_unit_test(test_hf_config__default_labels_are_no_names),
        cmocka_unit_test(test_hf_config__writes_what_it_read),
        cmocka_unit_test(test_hf_config__dropout_can_be_replaced),
        cmocka_unit_test(test_hf_config__reads_gpt2_and_vit),
        cmocka_unit_test(test_hf_config__refuses_with_the_field),
        cmocka_unit_test(test_hf_config__refuses_other_models_and_files),
        cmocka_unit_test(test_hf_config__refuses_a_list_as_preprocessor_config),
        cmocka_unit_test(test_hf_config__waits_for_no_pipe),
        cmocka_unit_test(test_hf_files__are_copied_as_files_of_their_own),
        cmocka_unit_test(test_hf_files__are_copied_all_or_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
