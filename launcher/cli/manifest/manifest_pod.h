/* The pods of a manifest. */
#ifndef FL_LAUNCHER_CLI_MANIFEST_MANIFEST_POD_H
#define FL_LAUNCHER_CLI_MANIFEST_MANIFEST_POD_H

#include "launcher/cli/manifest/manifest.h"
#include "launcher/cli/manifest/manifest_yaml.h"

#define FL_MANIFEST_LABEL "app.kubernetes.io/instance"
#define FL_MANIFEST_AGENTS_KEY "hosts.key"
#define FL_MANIFEST_HEAD_KEY "head.key"
#define FL_MANIFEST_HOSTS "hosts" /* the Job in a JobSet */

void fl_manifest_secret(const fl_manifest *m, char *text, size_t size_bytes);

/* "spec" of a pod; of a Job: bad input fails it, and it is done with its first pod. */
void fl_manifest_put_pod(fl_yaml_writer *w, const fl_manifest *m);
void fl_manifest_put_policies(fl_yaml_writer *w);

#endif
