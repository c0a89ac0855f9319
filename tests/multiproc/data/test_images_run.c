/* Image files as a job's data. Would catch: pixels other than those of the same images in an idx
 * file; augmentation that depends on the plan; names of classes that do not reach config.json, or
 * another order of them when the model is used; a job that is not refused. */
#include "support/folder.h"
#include "support/program.h"

#include <jansson.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VIT FL_SOURCE_DIR "/tests/reference/hf_vit"

enum { SIDE = 12, IMAGES = 10, HEADER = 16, LABELS_HEADER = 8 };

static char root[FOLDER_SIZE];
static const char *const classes[] = {"bag", "boot", "shirt"};

static void read_tail(const char *path, long header, uint8_t *to, size_t n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, header, SEEK_SET), 0);
    assert_int_equal(fread(to, 1, n, file), n);
    fclose(file);
}

/* The images of the idx files in tests/reference/hf_vit as PNG files. */
static void write_split(const char *prefix, const char *split)
{
    static uint8_t pixels[IMAGES * SIDE * SIDE], labels[IMAGES];
    char path[512];
    snprintf(path, sizeof path, VIT "/%s-images-idx3-ubyte", prefix);
    read_tail(path, HEADER, pixels, sizeof pixels);
    snprintf(path, sizeof path, VIT "/%s-labels-idx1-ubyte", prefix);
    read_tail(path, LABELS_HEADER, labels, sizeof labels);
    for (int i = 0; i < IMAGES; i++) {
        png_image image = {
            .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_GRAY};
        snprintf(path, sizeof path, "mkdir -p data/%s/%s", split, classes[labels[i]]);
        program_shell(root, path);
        snprintf(path, sizeof path, "%s/data/%s/%s/%d.png", root, split, classes[labels[i]], i);
        assert_true(png_image_write_to_file(&image, path, 0, pixels + i * SIDE * SIDE, 0, NULL));
    }
}

static void write_job(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    write_split("train", "train");
    write_split("t10k", "test");
    write_job("hf.yaml", "name: tiny\n"
                         "model: {kind: hf, path: " VIT "/model, dropout: 0}\n"
                         "data: {kind: images, path: {train: data/train, test: data/test}}\n"
                         "train: {epochs: 1, lr: 0.5, optimizer: sgd, momentum: 0, weight_decay: 0,"
                         " clip: none, warmup: 0, decay: constant, batch: 10}\n"
                         "devices: {count: 1, cores: 1, memory: 64MiB}\n");
    write_job("vit.yaml", "name: tiny\n"
                          "model: {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 4}\n"
                          "data: {kind: images, path: data/train, size: 16, augment: crop-flip, "
                          "crop: 3, validation: 2}\n"
                          "train: {epochs: 4, batch: 4, optimizer: sgd, lr: 0.1, warmup: 0, "
                          "weight_decay: 0}\n"
                          "devices: {count: 2, cores: 1, memory: 64MiB}\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* One step on the files is that of transformers on the same pixels. */
static void test_images_run__a_folder_model_takes_the_step_of_transformers(void **state)
{
    (void)state;
    program_run(root, 0, "run hf.yaml --run-dir hf");
    assert_non_null(strstr(program_result.err, "data: 20 images decoded in "));
    program_same_step(root, VIT "/model", "hf/model", VIT "/stepped.safetensors", 1e-5);
    program_shell(root,
                  "grep -q '\"1\": \"boot\"' hf/model/config.json && "
                  "cmp hf/model/preprocessor_config.json " VIT "/model/preprocessor_config.json");
}

/* The folder alone knows its classes and what pixels become. */
static void test_images_run__the_model_is_used_by_its_folder(void **state)
{
    (void)state;
    program_run(root, 0, "evaluate hf --json");
    char *first = strstr(program_result.out, "\"loss\": ");
    assert_non_null(first);
    char loss[32];
    snprintf(loss, sizeof loss, "%.24s", first);
    program_run(root, 0, "evaluate hf/model --data data/test --json");
    assert_non_null(strstr(program_result.out, loss));
    program_shell(root, "mkdir -p some && cp -r data/test/shirt some");
    program_run(root, 0, "predict hf/model --data some");
    assert_non_null(strstr(program_result.out, "\"label\": 2"));
    assert_null(strstr(program_result.out, "\"label\": 0"));
    program_shell(root, "cp -r data/test/bag some/glove");
    program_run(root, 0, "predict hf/model --data some --out some.jsonl");
    program_shell(root, "grep /glove/ some.jsonl >a && test -s a && ! grep -q label a && "
                        "grep -q '\"label\": 2, \"label_name\": \"shirt\"' some.jsonl");
    program_run(root, 2, "evaluate hf/model --data some");
    assert_non_null(
        strstr(program_result.err, "some: the class glove found, allowed: one of the 3"));
}

/* Images without folders for classes, and one image alone: they get what they get in the folder of
 * their class, but no label. */
static void test_images_run__predicts_loose_files(void **state)
{
    (void)state;
    program_shell(root, "mkdir loose && cp data/test/shirt/* loose && echo x > loose/notes.txt");
    program_run(root, 0, "predict hf/model --data data/test --out all.jsonl");
    program_run(root, 0, "predict hf/model --data loose --out loose.jsonl");
    program_shell(root, "grep 'test/shirt/' all.jsonl | sed 's/.*\"prediction\"//' >a && "
                        "sed 's/.*\"prediction\"//' loose.jsonl >b && cmp a b && test -s a && "
                        "grep -q '\"file\": \"loose/' loose.jsonl && ! grep -q label loose.jsonl");
    program_run(root, 0, "predict hf/model --data $(ls loose/* | head -n 1) --out one.jsonl");
    program_shell(root, "head -n 1 loose.jsonl | cmp - one.jsonl");
    program_run(root, 2, "evaluate hf/model --data loose");
    assert_non_null(strstr(program_result.err, "loose: 0 folders found, allowed: a folder for"));
    program_run(root, 2, "predict hf/model --data loose/notes.txt");
    assert_non_null(strstr(program_result.err, "data.path: loose/notes.txt: "));
}

/* Crops and flips are those of seed, epoch and sample: no plan changes what is learned, and a
 * replay repeats it to the last bit. */
static void test_images_run__augmentation_does_not_depend_on_the_plan(void **state)
{
    (void)state;
    program_run(root, 0, "run vit.yaml --run-dir one --set devices.count=1 --set train.seed=3");
    program_run(root, 0,
                "run vit.yaml --run-dir start --set devices.count=1 --set train.seed=3 "
                "--set train.max_steps=1 --set train.lr=1e-30");
    program_run(root, 0,
                "run vit.yaml --run-dir two --set pipe.k=1 --set autodp.r=2 --set "
                "train.seed=3 --set train.hash_weights=1");
    program_same_step(root, "start/model", "one/model", "two/model", 1e-4);
    program_run(root, 0, "run --replay two --run-dir again");
    program_run(root, 0, "diff two again");
    program_run(root, 0, "evaluate two --split validation");
    program_shell(root, "grep -q '\"labels\": \\[\"bag\", \"boot\", \"shirt\"\\]' "
                        "two/model/config.json");
}

typedef struct refusal {
    const char *job, *options, *says;
} refusal;

static void test_images_run__refuses_with_the_place(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"vit", "--set data.path=none-here", "data.path: none-here: No such file"},
        {"vit", "--set data.path=data", "data.path: data/test: no image found, allowed: files"},
        {"vit", "--set data.size=18", "model.patch: found 4, allowed: a divisor of the height"},
        {"vit", "--set data.crop=16", "a crop of 16 pixels found, 0 to 15 allowed"},
        {"vit", "--set 'data.classes=[1]'",
         "data.classes: found a list, with data.kind images allowed: all"},
        {"hf", "--set data.size=16", "data.size: found 16, allowed: auto or 12, image_size"},
        {"hf", "--set data.path=some", "data.path: some: "},
    };
    program_shell(root, "rm -rf some && mkdir some && echo x >some/x");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(root, 2, "validate %s.yaml %s", cases[i].job, cases[i].options);
        if (strstr(program_result.err, cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", program_result.err, cases[i].says);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_run__a_folder_model_takes_the_step_of_transformers),
        cmocka_unit_test(test_images_run__the_model_is_used_by_its_folder),
        cmocka_unit_test(test_images_run__predicts_loose_files),
        cmocka_unit_test(test_images_run__augmentation_does_not_depend_on_the_plan),
        cmocka_unit_test(test_images_run__refuses_with_the_place),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
