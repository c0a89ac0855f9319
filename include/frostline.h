/* Frostline: elastic pipeline and data parallel training. The whole public C API, but for
 * frostline/plugin.h, which a model in a shared object includes besides. */
#ifndef FROSTLINE_H
#define FROSTLINE_H

#include <frostline/check.h>
#include <frostline/dataset.h>
#include <frostline/exec.h>
#include <frostline/job.h>
#include <frostline/kernels.h>
#include <frostline/layer.h>
#include <frostline/model.h>
#include <frostline/plan.h>
#include <frostline/run.h>
#include <frostline/status.h>
#include <frostline/tensor.h>
#include <frostline/version.h>
#include <frostline/weights.h>

#endif
