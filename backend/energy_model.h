// How much of a GPU's energy each pod took. NVML counts the joules of the whole GPU, in steps of
// 100 ms; who held it for how long in each of them is known. So each pod's power while it holds,
// and that of the idle GPU, are the unknowns of a linear model: joules = idle power x idle time +
// sum over pods of power x held time. It is fitted by least squares with weights that fade, less
// for windows whose ends are known less exactly, and what the counter says is divided in proportion
// to it: the parts always add up to the counter.
//
// Where shares hardly vary from step to step, nothing tells pods' powers apart; then each has the
// GPU's mean power for the time that it held.
//
// Pure. Not thread safe.
#ifndef BATON_BACKEND_ENERGY_MODEL_H_
#define BATON_BACKEND_ENERGY_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::backend {

class EnergyModel {
 public:
  // Pods beyond so many count with the others' mean power.
  static constexpr size_t kPodsMax = 64;

  // What was measured from one change of the counter to a later one. Times in seconds, >= 0.
  struct Window {
    double seconds = 0;
    double joules = 0;
    std::map<uint64_t, double> held;  // by pod; at most `seconds` in all
    // By how many seconds its ends may be off, as a standard deviation.
    double blur_s = 0;
  };
  struct Parts {
    std::map<uint64_t, double> joules;  // by pod
    double idle = 0;                    // while nobody held
  };

  // `exact`: both ends are known to a few milliseconds, so pods' powers are learnt from it.
  void Learn(const Window& window, bool exact);
  // By what is known now; of several windows together, too.
  Parts Divide(const Window& window);
  // All that it knows, as bytes, and back; nothing: they are none.
  std::string Bytes() const;
  static std::optional<EnergyModel> FromBytes(std::string_view bytes);
  std::vector<uint64_t> Pods() const;
  // Its power is not to be remembered.
  void Forget(uint64_t pod);
  // In watts, as fitted for the last Divide(); the mean of all where nothing is known of it.
  double PowerOf(uint64_t pod) const;
  double idle_power() const { return idle_power_; }

 private:
  void LearnPowers(const Window& window);
  void Fit();
  // The number of a pod's unknown; 0 is the idle GPU's.
  size_t NumberOf(uint64_t pod);
  void Fade(double seconds);

  std::map<uint64_t, size_t> numbers_;
  std::vector<std::vector<double>> squares_ = {{0}};  // sums of products of times
  std::vector<double> products_ = {0};                // of times and joules
  std::vector<double> powers_ = {0};
  std::vector<double> remembered_ = {0};  // powers, when the last pod came; 0: not known
  double remembered_weight_ = 0;
  double held_s_ = 0, held_joules_ = 0;  // of windows in which somebody held for most of the time
  double idle_power_ = 0;
  bool fitted_ = true;    // all that was learnt is in powers_
  double idle_seen_ = 0;  // while there was nobody; 0: not known
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ENERGY_MODEL_H_
