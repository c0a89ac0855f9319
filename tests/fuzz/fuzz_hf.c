/* libFuzzer over Hugging Face folders, as far as launcher/hf reads them. The first byte chooses the
 * tokenizer's files and a share of dropout; the rest is config.json, preprocessor_config.json and
 * two files of the tokenizer. A folder that can be read makes a model for every task that it may
 * have, and what is written of it reads as the same model. */
#include "device/system/alloc.h"
#include "launcher/hf/hf_config.h"
#include "launcher/hf/hf_files.h"
#include "parts.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { INPUT_MAX = 1 << 16, PARTS = 4, DROPOUT = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The folder that is read, and the one that a run would leave. */
static char folder[FOLDER_ROOM], copy[FOLDER_ROOM];

static const char *const names[] = {"config.json",   "preprocessor_config.json",
                                    "vocab.txt",     "tokenizer_config.json",
                                    "vocab.json",    "merges.txt",
                                    "tokenizer.json"};
static const int tokenizer_files[][2] = {{2, 3}, {4, 5}, {6, 3}};
enum { N_NAMES = sizeof names / sizeof *names };

static void remove_files(void)
{
    for (int i = 0; i < N_NAMES; i++) {
        save_part(folder, names[i], (fl_text){0});
        save_part(copy, names[i], (fl_text){0});
    }
}

static void remove_all(void)
{
    remove_files();
    rmdir(folder);
    rmdir(copy);
}

/* The two files are the same, or are both missing. */
static void check_copy(const char *name)
{
    char path[2][PATH_MAX], bytes[2][INPUT_MAX];
    size_t n[2] = {0, 0};
    bool there[2];
    snprintf(path[0], sizeof path[0], "%s/%s", folder, name);
    snprintf(path[1], sizeof path[1], "%s/%s", copy, name);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(path[i], "rb");
        there[i] = file != NULL;
        if (there[i]) {
            n[i] = fread(bytes[i], 1, sizeof bytes[i], file);
            fclose(file);
        }
    }
    require(there[0] == there[1] && n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
}

/* What is copied beside a trained model is what the folder has. */
static void check_files(void)
{
    int fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    require(fd >= 0);
    require(fl_hf_files_copy(folder, fd) == FL_OK);
    for (int i = 1; i < N_NAMES; i++) {
        check_copy(names[i]);
    }
    require(fl_hf_files_has_any(folder) == fl_hf_files_has_any(copy));
    fl_hf_files_remove(fd);
    require(!fl_hf_files_has_any(copy));
    close(fd);
}

/* The model that the written file describes has the sizes of the model that was written. */
static void check_same(const fl_hf_config *a, const fl_hf_config *b)
{
    require(a->family == b->family);
    require(memcmp(&a->bert, &b->bert, sizeof a->bert) == 0);
    require(memcmp(&a->gpt2, &b->gpt2, sizeof a->gpt2) == 0);
    require(memcmp(&a->vit, &b->vit, sizeof a->vit) == 0);
    require(memcmp(&a->pixels, &b->pixels, sizeof a->pixels) == 0);
    require(a->n_classes == b->n_classes && a->n_labels == b->n_labels);
    for (int i = 0; i < a->n_labels; i++) {
        require(strcmp(a->labels[i], b->labels[i]) == 0);
    }
}

/* Write the config, read it, and write it again. */
static void check_text(const fl_hf_config *config)
{
    char *text = NULL, *again = NULL;
    const char *const *labels = config->n_labels > 0 ? config->labels : NULL;
    fl_hf_config read;
    require(fl_hf_config_text(config, labels, config->n_classes, "float32", &text) == FL_OK);
    save_part(folder, names[0], (fl_text){text, strlen(text)});
    require(fl_hf_config_read(folder, &read) == FL_OK);
    check_same(config, &read);
    require(fl_hf_config_text(&read, labels, read.n_classes, "float32", &again) == FL_OK);
    require(strcmp(text, again) == 0);
    fl_hf_config_fini(&read);
    fl_free(text);
    fl_free(again);
}

static void check_tasks(fl_hf_config *config)
{
    for (int t = 0; t < FL_HF_TASKS; t++) {
        fl_model *model = NULL;
        if (!fl_hf_config_can(config, (fl_hf_task)t)) {
            continue;
        }
        fl_hf_config_set_task(config, (fl_hf_task)t);
        require(fl_hf_config_task(config) == (fl_hf_task)t);
        (void)fl_hf_config_has_types(config);
        require(fl_hf_model_create(config, config->n_classes, &model) == FL_OK);
        fl_model_destroy(&model);
        check_text(config);
    }
}

static void check_folder(bool drops)
{
    fl_hf_config config;
    fl_status status = fl_hf_config_read(folder, &config);
    require(status == FL_OK || status == FL_EIO || status == FL_EFORMAT || status == FL_ENOTSUP);
    check_files();
    if (status != FL_OK) {
        return;
    }
    if (drops) {
        require(fl_hf_config_set_dropout(&config, 0.25) == FL_OK);
    }
    check_tasks(&config);
    fl_hf_config_fini(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int n_runs;
    fl_text parts[PARTS];
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    if (n_runs++ == 0) {
        make_part_folder("fuzz_hf", folder);
        make_part_folder("fuzz_hf_copy", copy);
        atexit(remove_all);
    }
    split_parts(data + 1, size - 1, parts, PARTS);
    remove_files();
    save_part(folder, names[0], parts[0]);
    save_part(folder, names[1], parts[1]);
    for (int i = 0; i < 2; i++) {
        save_part(folder, names[tokenizer_files[data[0] % 3][i]], parts[2 + i]);
    }
    check_folder((data[0] & DROPOUT) != 0);
    return 0;
}
