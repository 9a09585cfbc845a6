// How pods name models of GPUs.
#ifndef BATON_DEVMGR_PLACEMENT_MODEL_NAME_H_
#define BATON_DEVMGR_PLACEMENT_MODEL_NAME_H_

#include <string_view>

namespace baton::devmgr {

// Whether GPUs of `model` are meant by `text`: its words are in the name in that order, whatever
// the case ("a100 80gb" means "NVIDIA A100-SXM4-80GB").
bool MeansModel(std::string_view text, std::string_view model);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_MODEL_NAME_H_
