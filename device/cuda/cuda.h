/* The CUDA device: fl_device_ops over the table of a plugin. */
#ifndef FL_DEVICE_CUDA_CUDA_H
#define FL_DEVICE_CUDA_CUDA_H

#include "device/cuda/plugin.h"
#include "device/device.h"

/* Load a plugin's file; it stays loaded. The table is not checked yet. FL_ENOTSUP names the file
 * and the reason. */
fl_status fl_cuda_plugin_open(const char *path, const fl_cuda_plugin **out) FL_MUST_CHECK;

/* Whether a plugin is of this program's version and complete, and has at least n_devices devices.
 * FL_ENOTSUP: one line that names what is missing. */
fl_status fl_cuda_check(const fl_cuda_plugin *plugin, int n_devices) FL_MUST_CHECK;

/* Device `number` of the plugin's. Its budget is budget_bytes; workspaces of streams and pinned
 * memory lie outside. Errors of the runtime are FL_EFAILED, or FL_ENOMEM if it has no memory, and
 * name the call, the code and the runtime's own text. plugin: outlives the device. As
 * fl_cuda_check.
 */
fl_status fl_device_cuda_create(const fl_cuda_plugin *plugin, int number, size_t budget_bytes,
                                fl_device **out) FL_MUST_CHECK;

#endif
