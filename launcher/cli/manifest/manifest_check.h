/* What a manifest needs of its options and of the job, beyond what a run needs. */
#ifndef FL_LAUNCHER_CLI_MANIFEST_CHECK_H
#define FL_LAUNCHER_CLI_MANIFEST_CHECK_H

#include "launcher/cli/manifest/manifest.h"

#include <frostline/job.h>

#include <stdbool.h>

/* Names as Kubernetes takes them. object: a DNS subdomain of RFC 1123, in lower case. image:
 * [HOST[:PORT]/]PATH[:TAG][@DIGEST]. Pure. */
bool fl_manifest_is_object(const char *text);
bool fl_manifest_is_image(const char *text);

/* Whether a path of the job, absolute or relative to the pods' working directory, lies in that
 * directory without leaving it on the way. Pure. */
bool fl_manifest_is_in_work(const char *path);

/* Check the job's paths and ports against the pods. FL_EINVAL with the job's field. */
fl_status fl_manifest_check_job(const fl_manifest *m, const fl_job *job) FL_MUST_CHECK;

#endif
