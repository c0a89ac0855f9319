#include "device/machine/machine_kind.h"

#include "device/device.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 64, MODEL_BYTES = 96 };

/* The driver's file of a GPU has "Model:" and its name. */
static void read_model(const char *path, char model[MODEL_BYTES])
{
    char line[256];
    FILE *file = fopen(path, "re");
    model[0] = '\0';
    while (file != NULL && model[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "Model:", 6) == 0) {
            const char *name = line + 6 + strspn(line + 6, " \t");
            snprintf(model, MODEL_BYTES, "%.*s", (int)strcspn(name, "\n"), name);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int compare_models(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_models(char model[][MODEL_BYTES], int n, char text[FL_MACHINE_KIND_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    qsort(model, (size_t)n, MODEL_BYTES, compare_models);
    for (int i = 0; i < n && used < FL_MACHINE_KIND_TEXT; i++) {
        if (model[i][0] != '\0' && (i == 0 || strcmp(model[i], model[i - 1]) != 0)) {
            used += (size_t)snprintf(text + used, FL_MACHINE_KIND_TEXT - used, "%s%s",
                                     used == 0 ? "" : ", ", model[i]);
        }
    }
}

static void read_gpus(const char *root, char text[FL_MACHINE_KIND_TEXT])
{
    char pattern[PATH_MAX], model[GPUS_MAX][MODEL_BYTES];
    glob_t found = {0};
    int n = 0;
    snprintf(pattern, sizeof pattern, "%s/proc/driver/nvidia/gpus/*/information", root);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && n < GPUS_MAX; i++) {
            read_model(found.gl_pathv[i], model[n++]);
        }
    }
    globfree(&found);
    list_models(model, n, text);
}

void fl_machine_kind_read(const char *root, fl_machine_kind *out)
{
    char cpu[128];
    memset(out, 0, sizeof *out);
    snprintf(out->processor, sizeof out->processor, "%s, %s", fl_device_cpu_name(cpu, sizeof cpu),
             fl_device_cpu_isa());
    read_gpus(root, out->gpus);
}

const char *fl_machine_kind_of(const fl_machine_kind *kind, fl_device_kind devices)
{
    bool has_gpus = devices == FL_DEVICE_CUDA && kind->gpus[0] != '\0';
    return has_gpus ? kind->gpus : kind->processor;
}
