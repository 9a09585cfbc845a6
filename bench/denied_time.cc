#include "bench/denied_time.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/process.h"

namespace baton::bench {

Duration DeniedByOthers(const ProcessorUse& use) {
  const Duration others = std::max(use.busy - use.ran, Duration(0));
  const Duration all = others + use.ran;
  if (all <= Duration(0)) return use.stolen;
  const double part = static_cast<double>(others.count()) / static_cast<double>(all.count());
  return Duration(static_cast<int64_t>(static_cast<double>(use.waited.count()) * part)) +
         use.stolen;
}

double ExcusedPoints(double idle, double denied) {
  return std::min(std::max(idle, 0.0), std::max(denied, 0.0));
}

std::map<pid_t, DeniedTime::Thread> DeniedTime::ReadThreads() {
  std::map<pid_t, Thread> threads;
  std::vector<pid_t> pids = Descendants(getpid());
  pids.push_back(getpid());
  for (const pid_t pid : pids) {
    std::error_code gone;  // while it is read
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator at("/proc/" + std::to_string(pid) + "/task", gone);
         !gone && at != end; at.increment(gone)) {
      int64_t ran_ns = 0, waited_ns = 0;
      std::ifstream(at->path() / "schedstat") >> ran_ns >> waited_ns;
      threads[static_cast<pid_t>(std::stol(at->path().filename()))] = {Duration(ran_ns),
                                                                       Duration(waited_ns)};
    }
  }
  return threads;
}

DeniedTime::Processors DeniedTime::ReadProcessors() {
  cpu_set_t ours;
  CPU_ZERO(&ours);
  sched_getaffinity(0, sizeof ours, &ours);
  const auto tick = Duration(std::chrono::seconds(1)) / sysconf(_SC_CLK_TCK);
  Processors processors;
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line);) {
    // "cpu0 user nice system idle iowait irq softirq steal ..."; "cpu " is the sum.
    if (line.rfind("cpu", 0) != 0 || line.size() < 4 || line[3] == ' ') continue;
    const int number = atoi(line.c_str() + 3);
    if (number >= CPU_SETSIZE || !CPU_ISSET(number, &ours)) continue;
    std::istringstream fields(line.substr(line.find(' ')));
    int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    fields >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    ++processors.count;
    processors.idle += (idle + iowait) * tick;
    processors.stolen += steal * tick;
  }
  return processors;
}

DeniedTime::DeniedTime()
    : since_(MonotonicNow()), threads_(ReadThreads()), processors_(ReadProcessors()) {}

Duration DeniedTime::SoFar() const {
  ProcessorUse use;
  for (const auto& [tid, thread] : ReadThreads()) {
    const auto before = threads_.find(tid);
    const Thread since = before == threads_.end() ? Thread() : before->second;
    use.ran += thread.ran - since.ran;
    use.waited += thread.waited - since.waited;
  }
  const Processors now = ReadProcessors();
  use.stolen = now.stolen - processors_.stolen;
  use.busy = now.count * (MonotonicNow() - since_) - (now.idle - processors_.idle);
  return DeniedByOthers(use);
}

double DeniedTime::Percent() const {
  const auto denied = static_cast<double>(SoFar().count());
  return std::min(100.0, 100 * denied / static_cast<double>((MonotonicNow() - since_).count()));
}

}  // namespace baton::bench
