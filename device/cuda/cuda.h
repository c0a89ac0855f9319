/* The CUDA device: fl_device_ops over the table of a plugin. */
#ifndef FL_DEVICE_CUDA_CUDA_H
#define FL_DEVICE_CUDA_CUDA_H

#include "device/cuda/plugin.h"
#include "device/device.h"
#include "device/machine/survey.h"

/* The longest path of a plugin, with its zero. */
enum { FL_CUDA_PATH_BYTES = 4096 };

/* Load a plugin's file; it stays loaded. The table is not checked yet. FL_ENOTSUP names the file
 * and the reason. */
fl_status fl_cuda_plugin_open(const char *path, const fl_cuda_plugin **out) FL_MUST_CHECK;

/* The plugin's file: the one that FROSTLINE_CUDA_PLUGIN names, else libfrostline_cuda.so beside the
 * program, else the one in the library folder of its installation. FL_ENOTSUP names the places. */
fl_status fl_cuda_plugin_locate(char path[FL_CUDA_PATH_BYTES]) FL_MUST_CHECK;

/* Locate the plugin and load it. */
fl_status fl_cuda_plugin_find(const fl_cuda_plugin **out) FL_MUST_CHECK;

/* Whether a plugin is of this program's version and complete, and how many devices it finds, at
 * least one. FL_ENOTSUP: one line that names what is missing. */
fl_status fl_cuda_check(const fl_cuda_plugin *plugin, int *n_devices) FL_MUST_CHECK;

/* The devices that the workers of a job would use, and whether these can use them. As
 * fl_cuda_check. This process then has used the devices, and cannot fork workers any more. */
fl_status fl_cuda_survey(const fl_cuda_plugin *plugin, const fl_device_demand *demand,
                         fl_device_survey *out) FL_MUST_CHECK;

/* What computes matrix products. */
typedef enum fl_cuda_products {
    /* cuBLASLt: fast. Where it cannot be loaded, the own kernel computes them and a warning in the
     * log names the reason. */
    FL_CUDA_PRODUCTS_LIBRARY = 0,
    /* the own kernel: a row has the same bits whatever else is in the micro-batch */
    FL_CUDA_PRODUCTS_EXACT,
} fl_cuda_products;

typedef struct fl_cuda_options {
    const fl_cuda_plugin *plugin; /* outlives the device */
    int number;                   /* of the plugin's devices */
    /* Taken from the device at once. Workspaces, bf16 copies of weights and pinned memory lie
     * outside. SIZE_MAX: there is no budget, and nothing is taken before it is wanted. */
    size_t budget_bytes;
    fl_cuda_products products;
    bool tf32; /* products of fp32 values may round them to TF32 */
    /* The file from which cuBLASLt's answers of earlier processes come, and to which those of this
     * one go when the device is destroyed; NULL or "": none. A file for another GPU or another
     * version of the library is not used. */
    const char *algorithms;
} fl_cuda_options;

/* Errors of the runtime are FL_EFAILED, or FL_ENOMEM if it has no memory, and name the call, the
 * code and the runtime's own text. As fl_cuda_check. */
fl_status fl_device_cuda_create(const fl_cuda_options *options, fl_device **out) FL_MUST_CHECK;

/* What computes the products of a CUDA device: whether it is cuBLASLt. */
bool fl_cuda_has_library(fl_device *device);

/* The algorithms that cuBLASLt chose so far, as lines of text, and those of an earlier run of this
 * library on such a device: what they answer is not asked again. Lines of another version of the
 * library are left out; *n_taken counts the others. *text is freed with fl_free; "" where the own
 * kernel computes products. FL_ENOMEM */
fl_status fl_cuda_algorithms_save(fl_device *device, char **text) FL_MUST_CHECK;
fl_status fl_cuda_algorithms_load(fl_device *device, const char *text, int *n_taken) FL_MUST_CHECK;

#endif
