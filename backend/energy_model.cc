#include "backend/energy_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace baton::backend {
namespace {

// What was learnt fades to a half in so much of the time that was learnt from. Loads change.
constexpr double kHalfLife_s = 120;
// The weight of the mean power, as if each pod had been seen alone at it for so long: little beside
// what a minute tells, for it hides how pods differ.
constexpr double kPriorSeconds = 0.003;

// The same of what was known when the last pod came, and of the mean for that one: at first it
// weighs as much as some ten seconds tell of how pods differ, whose shares vary by a fifth or so
// from window to window. It may be wrong, and shares may vary by much less: it is gone before what
// was taken is divided (kYoung).
constexpr double kRememberedSeconds = 0.2;
constexpr double kRememberedHalfLife_s = 1;

// The same of the power that was seen while nobody was there. Between pods' turns the GPU may take
// more.
constexpr double kIdleSeconds = 0.1;
// Of a window so long it does not matter that its ends are not known exactly.
constexpr double kLong_s = 2;

// What a window tells is blurred so much by what is not known to anybody: when a token really
// moved, and when the counter.
constexpr double kBlur_s = 0.002;

constexpr std::string_view kModelMagic = "baton energy 1\n";

// Of a positive definite matrix, by Cholesky's decomposition.
std::vector<double> Solve(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const size_t n = right.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (size_t k = 0; k < j; ++k) sum -= matrix[i][k] * matrix[j][k];
      matrix[i][j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / matrix[j][j];
    }
    for (size_t k = 0; k < i; ++k) right[i] -= matrix[i][k] * right[k];
    right[i] /= matrix[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) right[i] -= matrix[k][i] * right[k];
    right[i] /= matrix[i][i];
  }
  return right;
}

}  // namespace

size_t EnergyModel::NumberOf(uint64_t pod) {
  const auto known = numbers_.find(pod);
  if (known != numbers_.end()) return known->second;
  if (numbers_.size() >= kPodsMax) return 0;
  if (!std::exchange(fitted_, true)) Fit();  // what was learnt up to now is to be remembered
  const size_t number = powers_.size();
  numbers_.emplace(pod, number);
  powers_.push_back(0);
  products_.push_back(0);
  for (auto& row : squares_) row.push_back(0);
  squares_.emplace_back(powers_.size(), 0.0);
  remembered_ = powers_;
  remembered_weight_ = kRememberedSeconds * kRememberedSeconds;
  return number;
}

// kModelMagic, the number of pods, their ids in the order of their numbers, all rows of squares_,
// products_, and three more figures. In this machine's order of bytes: it is read where it was
// written.
std::string EnergyModel::Bytes() const {
  std::string bytes(kModelMagic);
  const auto add = [&bytes](const auto& number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(uint64_t{numbers_.size()});
  std::vector<uint64_t> pods(numbers_.size());
  for (const auto& [pod, number] : numbers_) pods[number - 1] = pod;
  for (const uint64_t pod : pods) add(pod);
  for (const auto& row : squares_) {
    for (const double sum : row) add(sum);
  }
  for (const double sum : products_) add(sum);
  for (const double figure : {held_s_, held_joules_, idle_seen_}) add(figure);
  return bytes;
}

std::optional<EnergyModel> EnergyModel::FromBytes(std::string_view bytes) {
  if (!bytes.starts_with(kModelMagic)) return std::nullopt;
  bytes.remove_prefix(kModelMagic.size());
  const auto take = [&bytes](auto& number) {
    memcpy(&number, bytes.data(), sizeof number);
    bytes.remove_prefix(sizeof number);
  };
  uint64_t pods = 0;
  if (bytes.size() < sizeof pods) return std::nullopt;
  take(pods);
  if (pods > kPodsMax) return std::nullopt;
  if (bytes.size() != 8 * (pods + (pods + 1) * (pods + 1) + (pods + 1) + 3)) return std::nullopt;
  EnergyModel model;
  for (uint64_t i = 0; i < pods; ++i) {
    uint64_t pod = 0;
    take(pod);
    if (model.NumberOf(pod) != i + 1) return std::nullopt;  // twice
  }
  bool good = true;
  const auto figure = [&](double& to) {
    take(to);
    good = good && to >= 0 && to < 1e15;
  };
  for (auto& row : model.squares_) {
    for (double& sum : row) figure(sum);
  }
  for (double& sum : model.products_) figure(sum);
  for (double* to : {&model.held_s_, &model.held_joules_, &model.idle_seen_}) figure(*to);
  if (!good) return std::nullopt;
  model.remembered_weight_ = 0;
  model.Fit();
  return model;
}

std::vector<uint64_t> EnergyModel::Pods() const {
  std::vector<uint64_t> pods;
  for (const auto& [pod, number] : numbers_) pods.push_back(pod);
  return pods;
}

void EnergyModel::Forget(uint64_t pod) {
  const auto known = numbers_.find(pod);
  if (known == numbers_.end()) return;
  const size_t gone = known->second;
  numbers_.erase(known);
  for (auto& [id, number] : numbers_) number -= number > gone ? 1 : 0;
  const auto drop = [gone](auto& values) {
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(gone));
  };
  for (auto& row : squares_) drop(row);
  drop(squares_);
  drop(products_);
  drop(powers_);
  drop(remembered_);
}

void EnergyModel::Fade(double seconds) {
  const double factor = std::exp2(-seconds / kHalfLife_s);
  remembered_weight_ *= std::exp2(-seconds / kRememberedHalfLife_s);
  for (auto& row : squares_) {
    for (double& sum : row) sum *= factor;
  }
  for (double& sum : products_) sum *= factor;
  held_s_ *= factor;
  held_joules_ *= factor;
}

void EnergyModel::LearnPowers(const Window& window) {
  Fade(window.seconds);
  double held = 0;
  std::vector<std::pair<size_t, double>> times;
  for (const auto& [pod, seconds] : window.held) {
    held += seconds;
    if (const size_t number = NumberOf(pod); number != 0) times.emplace_back(number, seconds);
  }
  times.emplace_back(0, std::max(window.seconds - held, 0.0));
  const double ratio = window.blur_s / kBlur_s;
  const double weight = 1 / (1 + ratio * ratio);
  for (const auto& [a, seconds] : times) {
    for (const auto& [b, others] : times) squares_[a][b] += weight * seconds * others;
    products_[a] += weight * seconds * window.joules;
  }
  if (held > window.seconds / 2) {
    held_s_ += window.seconds;
    held_joules_ += window.joules;
  }
  fitted_ = false;
}

// Least squares, with no power below zero: what would be is zero, and the others are fitted anew.
void EnergyModel::Fit() {
  const double mean = held_s_ > 0 ? held_joules_ / held_s_ : 0;
  std::vector<size_t> unknown(powers_.size());
  std::iota(unknown.begin(), unknown.end(), size_t{0});
  std::fill(powers_.begin(), powers_.end(), 0.0);
  for (;;) {
    const size_t n = unknown.size();
    std::vector<std::vector<double>> matrix(n, std::vector<double>(n));
    std::vector<double> right(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) matrix[i][j] = squares_[unknown[i]][unknown[j]];
      matrix[i][i] += kPriorSeconds * kPriorSeconds;
      const bool idle_known = unknown[i] == 0 && idle_seen_ > 0;
      right[i] =
          products_[unknown[i]] + kPriorSeconds * kPriorSeconds * (idle_known ? idle_seen_ : mean);
      const auto add = [&](double weight, double watts) {
        matrix[i][i] += weight;
        right[i] += weight * watts;
      };
      const double before = remembered_[unknown[i]];
      if (unknown[i] != 0) {
        add(remembered_weight_, before > 0 ? before : mean);
      } else if (idle_known) {
        add(kIdleSeconds * kIdleSeconds, idle_seen_);
      }
    }
    const std::vector<double> fitted = Solve(std::move(matrix), std::move(right));
    std::vector<size_t> kept;
    for (size_t i = 0; i < n; ++i) {
      powers_[unknown[i]] = std::max(fitted[i], 0.0);
      if (fitted[i] >= 0) kept.push_back(unknown[i]);
    }
    if (kept.size() == n) break;
    unknown = std::move(kept);
  }
  idle_power_ = powers_[0];
}

double EnergyModel::PowerOf(uint64_t pod) const {
  const auto known = numbers_.find(pod);
  if (known != numbers_.end()) return powers_[known->second];
  return held_s_ > 0 ? held_joules_ / held_s_ : 0;
}

void EnergyModel::Learn(const Window& window, bool exact) {
  if (exact) {
    LearnPowers(window);
  } else if (window.held.empty() && window.seconds >= kLong_s) {
    idle_seen_ = window.joules / window.seconds;
    fitted_ = false;
  }
}

EnergyModel::Parts EnergyModel::Divide(const Window& window) {
  if (!std::exchange(fitted_, true)) Fit();
  double held = 0;
  for (const auto& [pod, seconds] : window.held) held += seconds;
  const double idle_s = std::max(window.seconds - held, 0.0);
  // While nothing was learnt of any pod: what is beyond the idle GPU's part, by time; and where
  // that is not known either, all of it.
  double idle_power = idle_power_, unknown = 1;
  if (held_s_ <= 0) {
    if (idle_power <= 0)
      idle_power = 1;
    else if (held > 0)
      unknown = std::max(window.joules - idle_power * idle_s, 0.0) / held;
  }
  Parts parts;
  double all = parts.idle = idle_s * idle_power;
  for (const auto& [pod, seconds] : window.held) {
    all += parts.joules[pod] = seconds * (held_s_ > 0 ? PowerOf(pod) : unknown);
  }
  if (all <= 0) {
    parts.joules.clear();
    parts.idle = window.joules;
    return parts;
  }
  for (auto& [pod, joules] : parts.joules) joules *= window.joules / all;
  parts.idle *= window.joules / all;
  return parts;
}

}  // namespace baton::backend
