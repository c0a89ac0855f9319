/* frostline export --to. Would catch: a model that PyTorch reads differently; numbers that are
 * rounded another way than to nearest; an overflow that becomes infinity silently; a folder that
 * holds half of a model. export_reference.bin comes from tests/reference/make_export_reference.py,
 * which says how to make it again. */
#include "launcher/run/saved/model_export.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "support/data/idx_files.h"
#include "support/device/nn_rig.h"
#include "support/device/reference.h"
#include "support/folder.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { N_IMAGES = 6, SIDE = 8, N_LABELS = 5, ARENA_BYTES = 1 << 20, NAME = 128, TENSORS = 64 };

static const double TOLERANCE = 1e-5;
static const fl_vit_config vit = {.channels = 1,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .patch = 4,
                                  .dim = 12,
                                  .heads = 3,
                                  .blocks = 2,
                                  .n_classes = N_LABELS};

static char root[FOLDER_SIZE], source[FOLDER_SIZE + 8], target[FOLDER_SIZE + 8];
static fl_model *model;
static fl_dataset data;
static fl_saved_model saved;
static float special; /* what the first element of the first tensor is; 0: as the others */

/* The same numbers everywhere: -0.5 to 0.5, and around 1 for the weights of norms. */
static void fill_values(const char *name, uint32_t *state, int64_t n, float *to)
{
    float base = strstr(name, ".ln.weight") != NULL ? 1.0f : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] = base + ((float)(*state >> 8) / 16777216.0f - 0.5f);
    }
}

static int list_specs(fl_st_spec specs[TENSORS], char names[TENSORS][NAME])
{
    int n = 0;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++, n++) {
            const fl_param_spec *p = &list->spec[i];
            snprintf(names[n], NAME, "%s.%s", fl_model_layer_name(model, layer), p->name);
            specs[n] = (fl_st_spec){
                .name = names[n], .n_dims = p->cols == 1 ? 1 : 2, .dims = {p->rows, p->cols}};
        }
    }
    return n;
}

/* source/model.safetensors, as a run leaves it. */
static void write_weights(void)
{
    static fl_st_spec specs[TENSORS];
    static char names[TENSORS][NAME];
    char path[FOLDER_SIZE + 64];
    fl_st_layout layout;
    uint32_t state = 1;
    int n = list_specs(specs, names);
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    FILE *file = fopen(path, "w+");
    assert_non_null(file);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, specs, n, NULL, 0), FL_OK);
    assert_int_equal(fl_st_layout_create(&layout, fileno(file), path), FL_OK);
    for (int i = 0; i < n; i++) {
        float *values = calloc((size_t)layout.n_elements[i], sizeof *values);
        fill_values(names[i], &state, layout.n_elements[i], values);
        if (i == 0 && special != 0) {
            values[0] = special;
        }
        assert_int_equal(
            fl_st_layout_write(&layout, fileno(file), path, i, 0, layout.n_elements[i], values),
            FL_OK);
        free(values);
    }
    fl_st_layout_fini(&layout);
    assert_int_equal(fclose(file), 0);
}

static void write_config(void)
{
    char path[FOLDER_SIZE + 64], *text = NULL;
    fl_job job;
    fl_job_defaults(&job);
    job.model.patch = vit.patch;
    job.model.dim = vit.dim;
    job.model.heads = vit.heads;
    job.model.blocks = vit.blocks;
    job.model.dropout = 0;
    assert_int_equal(fl_model_config_text(model, &data, &job, &text), FL_OK);
    snprintf(path, sizeof path, "%s/config.json", source);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    fl_free(text);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    snprintf(source, sizeof source, "%s/source", root);
    snprintf(target, sizeof target, "%s/target", root);
    if (mkdir(source, 0700) != 0) {
        return -1;
    }
    special = 0;
    write_split(root, "train", N_IMAGES, SIDE, SIDE, N_LABELS);
    write_split(root, "t10k", N_IMAGES, SIDE, SIDE, N_LABELS);
    assert_int_equal(fl_dataset_idx(root, FL_AUGMENT_NONE, 0, &data, NULL), FL_OK);
    assert_int_equal(fl_model_vit(&vit, &model), FL_OK);
    write_weights();
    write_config();
    assert_int_equal(fl_saved_model_find(source, &saved), FL_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    return remove_folder(root);
}

static fl_status export_into(const char *folder, fl_st_dtype dtype, fl_model_export_result *result)
{
    fl_safetensors *weights = NULL;
    fl_status status = fl_safetensors_open(saved.weights, &weights);
    if (status == FL_OK) {
        status = fl_model_export(&saved, weights, folder, dtype, result);
    }
    fl_safetensors_close(&weights);
    return status;
}

static fl_status export_as(fl_st_dtype dtype)
{
    fl_model_export_result result;
    return export_into(target, dtype, &result);
}

static bool is_there(const char *folder, const char *name)
{
    char path[FOLDER_SIZE + 64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

/* ---- PyTorch ---- */

/* The logits of the images, with the weights of a folder. */
static void compute_logits(const char *folder, float logits[N_IMAGES * N_LABELS])
{
    static rig r;
    const fl_shape raw = {.tokens = 1, .width = SIDE * SIDE, .dtype = FL_F32};
    const int64_t length[N_IMAGES] = {1, 1, 1, 1, 1, 1};
    const fl_device_options options = {.n_threads = 1, .budget_bytes = 1 << 26};
    fl_device *device = NULL;
    fl_safetensors *file = NULL;
    assert_int_equal(fl_device_open(&options, &device), FL_OK);
    assert_int_equal(fl_safetensors_open(folder, &file), FL_OK);
    assert_int_equal(rig_init(&r, device, model, &raw, length, N_IMAGES, ARENA_BYTES), FL_OK);
    for (int s = 0; s < N_IMAGES; s++) {
        const fl_sample_key key = {.id = s};
        assert_int_equal(
            data.ops->read(data.self, FL_TEST, &key, fl_f32(&r.act[0]) + (ptrdiff_t)s * raw.width),
            FL_OK);
    }
    for (int layer = 0; layer < r.n_layers; layer++) {
        for (int i = 0; i < r.params[layer].n; i++) {
            char name[NAME], record[NAME + 8];
            snprintf(name, sizeof name, "%s.%s", fl_model_layer_name(model, layer),
                     fl_model_param_name(model, layer, i));
            const fl_st_tensor *t = fl_safetensors_find(file, name);
            assert_non_null(t);
            assert_int_equal(
                fl_safetensors_read(file, t, 0, t->n_elements, r.weight[layer][i].data), FL_OK);
            snprintf(record, sizeof record, "w/%s", name); /* what PyTorch read */
            assert_memory_equal(r.weight[layer][i].data, stored(record, t->n_elements),
                                (size_t)t->n_elements * sizeof(float));
        }
    }
    rig_changed(&r);
    assert_int_equal(rig_forward(&r), FL_OK);
    memcpy(logits, r.act[r.n_layers].data, N_IMAGES * N_LABELS * sizeof *logits);
    rig_fini(&r);
    fl_safetensors_close(&file);
    fl_device_destroy(&device);
}

static void test_model_export__gives_pytorchs_logits(void **state)
{
    (void)state;
    float logits[N_IMAGES * N_LABELS];
    assert_int_equal(export_as(FL_ST_F32), FL_OK);
    reference_load("tests/reference/export_reference.bin");
    compute_logits(target, logits);
    assert_close("logits", logits, stored("logits", N_IMAGES * N_LABELS), N_IMAGES * N_LABELS,
                 TOLERANCE);
}

/* ---- numbers ---- */

static float exported_first(void)
{
    fl_safetensors *file = NULL;
    float value = 0;
    assert_int_equal(fl_safetensors_open(target, &file), FL_OK);
    const fl_st_tensor *t = fl_safetensors_find(file, "embed.patch.weight");
    assert_non_null(t);
    assert_int_equal(fl_safetensors_read(file, t, 0, 1, &value), FL_OK);
    fl_safetensors_close(&file);
    return value;
}

static void test_model_export__rounds_to_nearest_ties_to_even(void **state)
{
    (void)state;
    static const struct {
        fl_st_dtype dtype;
        float value, rounded;
    } cases[] = {
        {FL_ST_F32, 1.00000012f, 1.00000012f},
        {FL_ST_BF16, 0x1.01p0f, 0x1.00p0f}, /* half way: down to the even one */
        {FL_ST_BF16, 0x1.03p0f, 0x1.04p0f}, /* half way: up to the even one */
        {FL_ST_BF16, 0x1.0101p0f, 0x1.02p0f},
        {FL_ST_BF16, 0x1.FEp127f, 0x1.FEp127f}, /* the largest */
        {FL_ST_BF16, 0x1.FEFFFEp127f, 0x1.FEp127f},
        {FL_ST_F16, 0x1.002p0f, 0x1.000p0f},
        {FL_ST_F16, 0x1.006p0f, 0x1.008p0f},
        {FL_ST_F16, 65519.0f, 65504.0f},
        {FL_ST_F16, 0x1p-25f, 0.0f}, /* half of the smallest: to even */
        {FL_ST_F16, 0x1.8p-25f, 0x1p-24f},
        {FL_ST_F16, -(float)INFINITY, -(float)INFINITY}, /* no overflow: it was there before */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        special = cases[i].value;
        write_weights();
        if (export_as(cases[i].dtype) != FL_OK || exported_first() != cases[i].rounded) {
            fail_msg("%a: %s", (double)special, fl_errmsg());
        }
        assert_int_equal(remove_folder(target), 0);
    }
}

static void test_model_export__reports_an_overflow(void **state)
{
    (void)state;
    static const struct {
        fl_st_dtype dtype;
        float value;
        const char *message;
    } cases[] = {
        {FL_ST_F16, 65520.0f,
         "embed.patch.weight: element 0 is 65520, which is beyond the largest F16"},
        {FL_ST_F16, -1e6f, "element 0 is -1e+06, which is beyond the largest F16"},
        {FL_ST_BF16, 0x1.FFp127f, "which is beyond the largest BF16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        special = cases[i].value;
        write_weights();
        assert_int_equal(export_as(cases[i].dtype), FL_EINVAL);
        assert_non_null(strstr(fl_errmsg(), cases[i].message));
        assert_false(is_there(root, "target")); /* nor a folder that nobody had */
    }
}

/* ---- folders ---- */

static void test_model_export__needs_a_folder_without_a_model(void **state)
{
    (void)state;
    char path[FOLDER_SIZE + 64];
    assert_int_equal(mkdir(target, 0700), 0);
    snprintf(path, sizeof path, "%s/notes.txt", target);
    fclose(fopen(path, "w"));
    assert_int_equal(export_as(FL_ST_F32), FL_OK); /* other files may be there */
    assert_true(is_there(target, "notes.txt"));
    assert_false(is_there(target, "model.safetensors.part"));
    assert_false(is_there(target, "config.json.part"));
    assert_int_equal(export_as(FL_ST_F32), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "already holds model.safetensors"));
    snprintf(path, sizeof path, "%s/model.safetensors", target);
    assert_int_equal(remove(path), 0);
    assert_int_equal(export_as(FL_ST_F32), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "already holds config.json"));
}

static void test_model_export__refuses_weights_that_config_json_does_not_list(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"s/\"cls\"/\"cla\"/",
         "layers[0] lists embed.cla '[1, 12]'; the weights have no such tensor"},
        {"s/\"cls\": .1, 12., //", "lists 31 parameters; the weights have 32 tensors"},
        {"s/\"cls\": .1, 12./\"cls\": [2, 12]/", "the weights have it in another shape"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char command[256];
        write_config();
        snprintf(command, sizeof command, "sed -i '%s' %s/config.json", edits[i][0], source);
        assert_int_equal(system(command), 0);
        assert_int_equal(export_as(FL_ST_F32), FL_EFORMAT);
        if (strstr(fl_errmsg(), edits[i][1]) == NULL) {
            fail_msg("%s", fl_errmsg());
        }
        assert_false(is_there(root, "target"));
    }
}

/* For make_export_reference.py: only the folder. */
static int write_for_reference(const char *folder)
{
    fl_model_export_result result;
    set_up(NULL);
    fl_status status = export_into(folder, FL_ST_F32, &result);
    tear_down(NULL);
    printf("%s: %s\n", folder, status == FL_OK ? "exported" : fl_errmsg());
    return status == FL_OK ? 0 : 1;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_model_export__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(gives_pytorchs_logits),
        TEST(rounds_to_nearest_ties_to_even),
        TEST(reports_an_overflow),
        TEST(needs_a_folder_without_a_model),
        TEST(refuses_weights_that_config_json_does_not_list),
    };
    if (getenv("FL_EXPORT_DIR") != NULL) {
        return write_for_reference(getenv("FL_EXPORT_DIR"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
