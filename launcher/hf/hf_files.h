/* The files of a Hugging Face folder that say what goes into the model, those of its tokenizer or
 * preprocessor_config.json, copied beside a trained model. */
#ifndef FL_LAUNCHER_HF_HF_FILES_H
#define FL_LAUNCHER_HF_HF_FILES_H

#include <frostline/job.h>

#include <stdbool.h>

/* The folder that a job takes them from: data.tokenizer or, of kind hf, model.path; "": its model
 * leaves no such folder. */
const char *fl_hf_files_of_job(const fl_job *job);

/* Whether the folder holds some of them. */
bool fl_hf_files_has_any(const char *folder);

/* Copy those that `folder` has into the folder to_fd, in place of what is there. On failure none of
 * them is left. FL_EIO */
fl_status fl_hf_files_copy(const char *folder, int to_fd) FL_MUST_CHECK;

/* Remove all of them from the folder. */
void fl_hf_files_remove(int folder_fd);

#endif
