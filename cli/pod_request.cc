#include "cli/pod_request.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/caller.h"
#include "spec/pod_request.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// As the daemon takes it. Empty: nothing was written.
json ValueOf(const spec::PodField& field, const PodFlags& flags) {
  if (field.is_list()) {
    const auto list = flags.lists.find(field.key);
    return list == flags.lists.end() || list->second.empty() ? json() : json(list->second);
  }
  const auto text = flags.texts.find(field.key);
  if (text == flags.texts.end() || text->second.empty()) return {};
  if (field.value.empty()) return true;
  if (field.value == "N") {
    // What is no number is complained about as text.
    uint32_t number = 0;
    const char* const end = text->second.data() + text->second.size();
    const auto [at, error] = std::from_chars(text->second.data(), end, number);
    if (error == std::errc() && at == end) return number;
  }
  return text->second;
}

// "0.3" is 0.3 %, but who writes it may mean a part of one. With "%" there is no doubt.
bool IsLikeAFraction(const std::string& text) {
  return text.find('%') == std::string::npos && std::strtod(text.c_str(), nullptr) < 1;
}

// Reads what was written into `request`, and gives its fields.
Result<json> Said(const PodFlags& flags, spec::PodRequest& request) {
  json fields = json::object();
  for (const spec::PodField& field : spec::PodFields()) {
    json value = ValueOf(field, flags);
    if (value.is_null()) continue;
    if (auto read = spec::ReadField(field, value, request); !read) {
      return Fail(read.error().code,
                  std::string(field.flag) + read.error().message.substr(field.key.size()));
    }
    if ((field.key == "request" || field.key == "limit") && value.is_string() &&
        IsLikeAFraction(value.get_ref<const std::string&>())) {
      const std::string& text = value.get_ref<const std::string&>();
      std::fprintf(stderr,
                   "baton: warning: %s %s is %s %% of a GPU; write %.6g if you mean %.6g %%, "
                   "%s%% if you mean %s %%\n",
                   std::string(field.flag).c_str(), text.c_str(), text.c_str(),
                   std::stod(text) * 100, std::stod(text) * 100, text.c_str(), text.c_str());
    }
    const json exact = spec::WriteField(field, request);
    fields[field.key] = exact.is_null() ? value : exact;  // null: written, and means none
  }
  const policy::ShareSpec& share = request.share;
  if (share.request != policy::Share(0) && share.limit != policy::Share(0) &&
      share.limit < share.request) {
    return Fail(ErrorCode::kInvalid, "--limit " + flags.texts.at("limit") + " is below --request " +
                                         flags.texts.at("request") +
                                         "; a limit is at least the request, or left out");
  }
  return fields;
}

}  // namespace

bool PodFlags::empty() const {
  return std::all_of(texts.begin(), texts.end(), [](const auto& t) { return t.second.empty(); }) &&
         std::all_of(lists.begin(), lists.end(), [](const auto& l) { return l.second.empty(); });
}

void AddPodFlags(CLI::App& command, PodFlags& flags, bool changes_only) {
  for (const spec::PodField& field : spec::PodFields()) {
    if (field.flag.empty() || (changes_only && !field.changes)) continue;
    const std::string flag(field.flag);
    std::string about(field.about);
    if (field.key == "user") about += "; default: yours";
    if (field.value.empty()) {
      command.add_flag_callback(
          flag, [&to = flags.texts[field.key]] { to = "true"; }, about);
    } else if (field.is_list()) {
      command.add_option(flag, flags.lists[field.key], about + "; repeatable")
          ->type_name(std::string(field.value))
          ->allow_extra_args(false);
    } else {
      command.add_option(flag, flags.texts[field.key], about)->type_name(std::string(field.value));
    }
  }
}

Result<json> ChangeFields(const PodFlags& flags) {
  spec::PodRequest checked;
  return Said(flags, checked);
}

Result<json> PodRequestFields(const PodFlags& flags) {
  spec::PodRequest request;
  if (auto said = Said(flags, request); !said) return said;
  // batond knows what a flavor fills in.
  if (request.flavor.empty()) {
    if (request.share.request == policy::Share(0) && request.share.limit == policy::Share(0) &&
        request.share.priority != policy::Priority::kIdle) {
      return Fail(ErrorCode::kInvalid,
                  "missing share: --request 30 guarantees 30 % and lends idle time, "
                  "--limit 30 is 30 % and never more, --flavor names a size of the operator's");
    }
    if (auto complete = spec::Complete(request); !complete) return tl::unexpected(complete.error());
  }
  if (request.user.empty()) request.user = SudoCaller().value_or(OwnAccount()).name;
  if (request.count == 0) {
    const size_t named = request.wishes.gpus.size();
    if (named > spec::kGpusMax) {
      return Fail(
          ErrorCode::kInvalid,
          fmt::format("--gpu names {} GPUs, and a pod has at most {}; with --count N it gets "
                      "N of them",
                      named, spec::kGpusMax));
    }
    request.count = std::max<uint32_t>(1, static_cast<uint32_t>(named));
  }
  return spec::WriteFields(request);
}

}  // namespace baton::cli
