"""A robot that is not mcat's, from its check to one policy for several of it: gymnasium's Walker2d.

It falls, and then the episode is over. The sizes are those of a trial: they show the way, not a
policy that walks.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from mcat.cli import run

# A family of your own: what varies, machines to learn on, others to be tested on. `env` may be any
# gymnasium id with Box spaces; for one that you registered in my_robot.py: "my_robot:MyRobot-v0".
WALKERS = """
env = "Walker2d-v5"
varies = "mass"          # times stock; or damping, gear, friction …, or an argument of its own
train = [0.8, 1.0, 1.2]
test = [1.5]
delay = 10               # rewards are paid every 10 steps, and where an episode ends
horizon = 100

[arguments]              # of gymnasium.make
healthy_reward = 0.5
"""


def mcat(command: str) -> None:
    """Run one command as a user would type it; stop if it fails."""
    print(f"\n$ mcat {command}", flush=True)
    if code := run(shlex.split(command)):
        sys.exit(code)


def main() -> None:
    """Run the commands one after another."""
    Path("walkers.toml").write_text(WALKERS)

    # Does it keep what training needs, and when do its episodes end?
    mcat("envs check walkers.toml")

    # A policy for the stock walker, and logs of all of them.
    machine = "--env Walker2d-v5 --env-arg healthy_reward=0.5 --horizon 100"
    mcat(f"train {machine} --steps 1200 --start-steps 600 --evaluate-every 600 --quiet --out stock")
    mcat("collect --family walkers.toml --split all --steps 1500 --out logs --quiet")
    mcat("dataset check logs/walker2d-mass1-healthy_reward0.5-delay10.h5")

    # What to do on a walker of half as much weight again, from logs of both.
    mcat(
        "translate --src logs/walker2d-mass1-healthy_reward0.5-delay10.h5"
        " --tgt logs/walker2d-mass1.5-healthy_reward0.5-delay10.h5"
        " --policy stock --preset smoke --episodes 5 --quiet --out heavier"
    )

    # One policy for all of them, then on one that is in no list.
    mcat("metatrain --family walkers.toml --preset smoke --steps 2000 --quiet --out walkers"
         " --set mcat.start_steps=900")  # fmt: skip
    mcat(f"evaluate walkers {machine} --mass 2 --episodes 5 --quiet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # leave it out to keep what is made
        os.chdir(folder)
        main()
