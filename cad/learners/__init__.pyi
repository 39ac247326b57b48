"""What type checkers see of learners that are loaded when they are first asked for."""

from cad.learners.averaged import AveragedProbabilisticSVC as AveragedProbabilisticSVC
from cad.learners.baselines import KernelLogistic as KernelLogistic
from cad.learners.baselines import LogitSVR as LogitSVR
from cad.learners.probabilistic import ProbabilisticSVC as ProbabilisticSVC
from cad.learners.ranking.opauc import OPAUC as OPAUC
from cad.learners.ranking.rankboost import RankBoost as RankBoost
from cad.learners.ranking.rankboost import SSRankBoost as SSRankBoost
from cad.learners.ranking.svmlin import SVMLin as SVMLin
from cad.learners.ranking.svmroc import SSLROC as SSLROC
from cad.learners.ranking.svmroc import SVMROC as SVMROC
from cad.learners.regressor import ProbabilityRegressor as ProbabilityRegressor
from cad.learners.reject import RejectSVC as RejectSVC
from cad.learners.svm import FuzzySVC as FuzzySVC
from cad.learners.svm import PlattSVC as PlattSVC
from cad.learners.svm import SoftPlattSVC as SoftPlattSVC
from cad.learners.trees import ProbabilisticEnsemble as ProbabilisticEnsemble
from cad.learners.trees import SoftExtraTrees as SoftExtraTrees

LEARNERS: dict[str, type]
