"""What type checkers see of learners that are loaded when they are first asked for."""

from cad.learning.learners.averaged import AveragedProbabilisticSVC as AveragedProbabilisticSVC
from cad.learning.learners.baselines import KernelLogistic as KernelLogistic
from cad.learning.learners.baselines import LogitSVR as LogitSVR
from cad.learning.learners.ensemble import ProbabilisticEnsemble as ProbabilisticEnsemble
from cad.learning.learners.probabilistic import ProbabilisticSVC as ProbabilisticSVC
from cad.learning.learners.ranking.opauc import OPAUC as OPAUC
from cad.learning.learners.ranking.rankboost import RankBoost as RankBoost
from cad.learning.learners.ranking.rankboost import SSRankBoost as SSRankBoost
from cad.learning.learners.ranking.svmlin import SVMLin as SVMLin
from cad.learning.learners.ranking.svmroc import SSLROC as SSLROC
from cad.learning.learners.ranking.svmroc import SVMROC as SVMROC
from cad.learning.learners.regressor import ProbabilityRegressor as ProbabilityRegressor
from cad.learning.learners.reject import RejectSVC as RejectSVC
from cad.learning.learners.svm import FuzzySVC as FuzzySVC
from cad.learning.learners.svm import PlattSVC as PlattSVC
from cad.learning.learners.svm import SoftPlattSVC as SoftPlattSVC
from cad.learning.learners.trees import SoftExtraTrees as SoftExtraTrees

LEARNERS: dict[str, type]
