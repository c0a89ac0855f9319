#include "support/runs/used.h"

#include "support/data/idx_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

char used_root[FOLDER_SIZE];

void used_write(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", used_root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static const char job_text[] = "name: small\n"
                               "model: {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 4}\n"
                               "data: {kind: idx, path: data, validation: 12}\n"
                               "train: {epochs: 2, batch: 20, lr: 3e-3, metric: accuracy}\n"
                               "devices: {count: 2, cores: 1, memory: 64MiB}\n"
                               "pipe: {k: 2, m: 2}\n";

int used_set_up(void **state)
{
    (void)state;
    char folder[128];
    make_folder(used_root);
    snprintf(folder, sizeof folder, "mkdir %s/data %s/other", used_root, used_root);
    assert_int_equal(system(folder), 0);
    snprintf(folder, sizeof folder, "%s/data", used_root);
    write_split(folder, "train", USED_TRAINING, 8, 8, 4);
    write_split(folder, "t10k", USED_TESTS, 8, 8, 4);
    snprintf(folder, sizeof folder, "%s/other", used_root);
    write_split(folder, "t10k", 30, 8, 8, 3);
    used_write("job.yaml", job_text);
    program_run(used_root, 0, "run job.yaml --run-dir run");
    return 0;
}

int used_tear_down(void **state)
{
    (void)state;
    return remove_folder(used_root);
}

json_t *used_output(void)
{
    json_error_t error;
    json_t *object = json_loads(program_result.out, 0, &error);
    if (object == NULL) {
        fail_msg("%s in %s", error.text, program_result.out);
    }
    return object;
}

double used_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}
