// The control daemons of NVIDIA's Multi-Process Service: one for each GPU that is shared by it,
// with its own folder for its sockets and its logs. Started, asked and ended with the program
// nvidia-cuda-mps-control, as its man page has it.
#ifndef BATON_DEVMGR_MACHINE_MPS_CONTROL_H_
#define BATON_DEVMGR_MACHINE_MPS_CONTROL_H_

#include <string>

#include "base/result.h"
#include "base/time.h"

namespace baton::devmgr {

// Thread safe, but calls for one GPU come one after another.
class MpsControl {
 public:
  virtual ~MpsControl() = default;

  // What clients of the GPU's daemon name in CUDA_MPS_PIPE_DIRECTORY.
  virtual std::string PipeDirectory(const std::string& card) const = 0;
  // Whether the GPU's daemon is there and answers. kUnavailable: it is there and does not.
  virtual Result<bool> Running(const std::string& card) = 0;
  // Starts it, and returns when it answers. kNotFound: there is no such program on this machine;
  // kUnavailable: it ended at once, or does not answer.
  virtual Result<void> Start(const std::string& card) = 0;
  // What it answers to one command, without the newline at the end. kInvalid: it refused;
  // kUnavailable: there is no daemon, or it does not answer.
  virtual Result<std::string> Tell(const std::string& card, const std::string& command) = 0;
  // Ends it, which waits for its clients, and removes what it left behind. Success where there is
  // none. kUnavailable: it did not end in time.
  virtual Result<void> Stop(const std::string& card) = 0;
};

class ProcessMpsControl final : public MpsControl {
 public:
  struct Options {
    std::string program = "nvidia-cuda-mps-control";  // a path, or looked for in $PATH
    // A folder for each GPU is made in it. Pods must be able to reach it at the same path.
    std::string folder = "/run/baton/mps";
    Duration timeout = std::chrono::seconds(10);  // for each of: start, answer, end
  };
  explicit ProcessMpsControl(Options options);

  std::string PipeDirectory(const std::string& card) const override;
  Result<bool> Running(const std::string& card) override;
  Result<void> Start(const std::string& card) override;
  Result<std::string> Tell(const std::string& card, const std::string& command) override;
  Result<void> Stop(const std::string& card) override;

 private:
  struct Outcome;
  Result<void> Check(const std::string& card) const;
  // Runs the program for the GPU, with `input` on its stdin.
  Result<Outcome> Run(const std::string& card, const char* argument, const std::string& input);
  std::string Folder(const std::string& card) const { return options_.folder + "/" + card; }

  const Options options_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_MPS_CONTROL_H_
